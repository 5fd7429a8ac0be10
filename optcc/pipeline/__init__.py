"""Passes by name, plans, and the runner that holds passes to their promises."""
