"""Spell one quantization decision for each runtime."""
