"""A pass for optcc in a distribution of its own."""
