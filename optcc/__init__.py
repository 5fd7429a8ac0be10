"""optcc: an ahead-of-time model optimization compiler with a command line."""

__version__ = "0.1.0"

__all__ = ["__version__"]
