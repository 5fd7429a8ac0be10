"""Decide what runs in int8, and on which integer grids."""
