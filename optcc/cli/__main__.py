"""`python -m optcc.cli` is the same as `optcc`."""

from optcc.cli.main import main

main()
