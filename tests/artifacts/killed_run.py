"""A run for tests that kill it: `python killed_run.py OUT CONTENT MODE`.

Modes: `commit` writes OUT once; `wait` tells that the stage is filled and waits; `loop` commits
without end, every file holding the number of the round.
"""

import sys
import time
from pathlib import Path

from optcc.artifacts.manifest import build_manifest
from optcc.artifacts.output_folder import OutputFolder
from optcc.errors import OptccError

FILES = ("a.bin", "b.bin", "deep/c.bin")


def fill(folder: OutputFolder, content: str) -> None:
    """Write files that all hold `content`."""
    for name in FILES:
        folder.write(name, content.encode() * 200)
    facts = build_manifest(folder.stage, input={}, options={"n": content}, versions={}, seeds={})
    folder.write("manifest.json", facts)


def tell_ready() -> None:
    """Let the test go on."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def run(out: Path, content: str, mode: str) -> None:
    """Do what `mode` says."""
    with OutputFolder(out) as folder:
        fill(folder, content)
        if mode == "wait":
            tell_ready()
            time.sleep(600)
        folder.commit()


def main() -> int:
    """Return the exit code of the error that came up."""
    out, content, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    rounds = iter(range(10**9)) if mode == "loop" else [None]
    try:
        for number in rounds:
            run(out, content if number is None else str(number % 10), mode)
            if number == 0:
                tell_ready()
    except OptccError as error:
        sys.stderr.write(f"error: {error.what}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
