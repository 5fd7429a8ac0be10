"""Hardware models as data."""
