"""Run the session of the README again and write what it prints into both READMEs.

    .venv/bin/python tools/readme_session.py

Run it on a quiet machine: the latency in it is measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh.md")
SESSION = re.compile(r"^```console\n\$ (.*?[^\\])\n(.*?)^```$", re.M | re.S)
WIDTH = "100"


def output_of(command: str) -> str:
    """Run one `optcc` command line, which may be continued with backslashes."""
    words = command.replace("\\\n", " ").split()
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": WIDTH},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def main() -> None:
    """Update the session in place."""
    texts = {name: (ROOT / name).read_text("utf-8") for name in READMES}
    found = SESSION.search(texts[READMES[0]])
    if found is None:
        sys.exit("error: README.md has no console block")
    command = found.group(1)
    block = f"```console\n$ {command}\n{output_of(command)}```"
    for name, text in texts.items():
        (ROOT / name).write_text(SESSION.sub(lambda _: block, text), "utf-8")


if __name__ == "__main__":
    main()
