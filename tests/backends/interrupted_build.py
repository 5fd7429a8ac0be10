"""Build the model in the folder given, and say when the build is under way. Run as a script."""

from __future__ import annotations

import sys
from pathlib import Path

from optcc.backends.contract import BuildJob
from optcc.backends.tensorrt_rtx import TensorrtRtx
from optcc.progress import Silent
from tests.backends.build import profile


class Announce(Silent):
    """Prints one line when the builder has begun."""

    said = False

    def step(self, done: int, total: int | None = None) -> None:
        if done >= 1 and not self.said:
            self.said = True
            sys.stdout.write("building\n")
            sys.stdout.flush()


def main(folder: Path) -> None:
    request = BuildJob(
        model=folder / "model.onnx",
        out=folder / "model.engine",
        profile=profile(x=(8, 64, 16, 16)),
    )
    TensorrtRtx().build(request, Announce())
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
