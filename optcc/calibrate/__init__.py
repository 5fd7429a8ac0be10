"""Datasets, observers, and the ranges they give."""
