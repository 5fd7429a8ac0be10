"""Passes that change in which order the axes of data lie."""
