"""One ONNX Runtime session with the settings that make a comparison fair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from optcc.errors import BackendError

__all__ = ["OptimizationLevel", "Session"]

_WEIGHTS_FILE = "session.optimized_model_external_initializers_file_name"
_WEIGHTS_MIN_BYTES = "session.optimized_model_external_initializers_min_size_in_bytes"


class OptimizationLevel(Enum):
    """How much the runtime may rewrite the graph itself."""

    OFF = "ORT_DISABLE_ALL"
    BASIC = "ORT_ENABLE_BASIC"
    EXTENDED = "ORT_ENABLE_EXTENDED"
    ALL = "ORT_ENABLE_ALL"


class Session:
    """An open model on the CPU provider.

    Args:
        source: Serialized model, or the path of a model file (needed for external data).
        level: Runtime optimizations; OFF for every reference.
        threads: Intra-op threads; 1 gives reproducible sums.
        save_optimized: Where the runtime shall write its own optimized graph; larger constants go
            into `<name>.data` beside it.

    Raises:
        BackendError: The runtime refuses the model.
    """

    def __init__(
        self,
        source: bytes | Path,
        *,
        level: OptimizationLevel = OptimizationLevel.OFF,
        threads: int = 1,
        save_optimized: Path | None = None,
    ) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level.value)
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Idle threads of one session would otherwise spin into the time of the next one.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if level is OptimizationLevel.OFF:
            _spare_memory(options)
        if save_optimized is not None:
            options.optimized_model_filepath = str(save_optimized)
            weights = f"{save_optimized.name}.data"  # keeps the graph small, and below 2 GiB
            options.add_session_config_entry(_WEIGHTS_FILE, weights)
            options.add_session_config_entry(_WEIGHTS_MIN_BYTES, "1024")
        model = str(source) if isinstance(source, Path) else source
        try:
            self._session: Any = ort.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises one class per status code
            raise BackendError(_first_line(error), where="onnxruntime") from error
        self.inputs: tuple[str, ...] = tuple(i.name for i in self._session.get_inputs())
        self.outputs: tuple[str, ...] = tuple(o.name for o in self._session.get_outputs())

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Run once.

        Raises:
            BackendError: The runtime fails on these feeds.
        """
        names = list(outputs) if outputs is not None else list(self.outputs)
        known = {k: v for k, v in feeds.items() if k in self.inputs}
        try:
            results = self._session.run(names, known)
        except Exception as error:
            raise BackendError(_first_line(error), where="onnxruntime") from error
        return dict(zip(names, results, strict=True))


def _spare_memory(options: Any) -> None:  # noqa: ANN401 - onnxruntime is imported on use
    """Free each buffer as soon as its last reader has run; results stay the same.

    The default order of nodes runs what only an output needs last, which keeps all that it reads.
    """
    import onnxruntime as ort

    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:400]
