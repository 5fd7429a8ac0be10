"""Commands: parse, call one driver function, render."""
