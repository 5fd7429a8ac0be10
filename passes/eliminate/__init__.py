"""Passes that take away what does nothing: dead code, identities, duplicates."""
