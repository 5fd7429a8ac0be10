"""Readers that turn a file into a loaded model."""
