"""Run a cut: once opened, on as many feeds as asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.runtime.session import Session
from optcc.verify.cut import Cut

__all__ = ["CutFeed", "CutRunner"]

CutFeed = Mapping[ir.Value, np.ndarray]
"""Contents of the live values at which a region begins."""


class CutRunner:
    """Runs one cut in the reference runtime; outputs that are constants or inputs need no run."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self._constants = {
            v: a for v in cut.outputs if v not in cut.names and (a := constant_of(v)) is not None
        }
        self._session: Session | None = None

    def run(self, feed: CutFeed) -> tuple[np.ndarray, ...]:
        """Return one array per output of the cut.

        Raises:
            BackendError: The runtime refuses the region or the feed.
        """
        made = self._run_model(feed) if self.cut.names else {}
        return tuple(self._result(v, feed, made) for v in self.cut.outputs)

    def named(self, feed: CutFeed) -> Feed:
        """Return `feed` under the names that the model of the cut knows."""
        return {name: feed[value] for name, value in self.cut.inputs.items()}

    def _run_model(self, feed: CutFeed) -> Feed:
        if self._session is None:
            assert self.cut.model is not None
            self._session = Session(to_bytes(self.cut.model))
        feeds = self.named(feed) | dict(self.cut.constants)
        return self._session.run(feeds, list(dict.fromkeys(self.cut.names.values())))

    def _result(self, value: ir.Value, feed: CutFeed, made: Feed) -> np.ndarray:
        if value in self.cut.names:
            return np.asarray(made[self.cut.names[value]])
        return self._constants[value] if value in self._constants else feed[value]
