"""Probes, numeric comparison, and region checks."""
