"""What the user asks for, as frozen data."""
