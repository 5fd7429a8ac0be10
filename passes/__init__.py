"""The transformations that ship with optcc; they plug in through entry points."""
