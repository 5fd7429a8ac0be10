"""Latency, accuracy, size and memory, measured on what can run here."""
