"""Passes that compute at compile time what never changes."""
