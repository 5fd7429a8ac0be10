"""Which float type each node computes in, and the Casts between them."""
