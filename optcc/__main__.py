"""Run the command line as `python -m optcc`."""

from optcc.cli.main import main

main()
