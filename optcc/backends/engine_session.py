"""A loaded engine on the device: tensors go in and come out, and runs are timed.

Runs in the child process of `engine_run` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optcc.backends.cuda_driver import CudaDriver
from optcc.backends.trt_adapter import Native, TrtModule
from optcc.backends.worker_channel import Channel

if TYPE_CHECKING:
    from optcc.passkit.contract import Feed

__all__ = ["EngineError", "EngineSession", "Inference"]

_DTYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "UINT8": np.uint8,
}
"""NumPy's type of an engine's tensor; what is not here has none."""


class EngineError(Exception):
    """The runtime refuses the engine, or a feed."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: type[np.generic]
    on_host: bool


@dataclass(slots=True)
class _Buffer:
    """Memory of one tensor: on the device, or on the host for what the runtime reads there."""

    address: int
    array: np.ndarray | None = None


@dataclass(slots=True)
class Inference:
    """One feed that lies on the device, with room for its outputs.

    Attributes:
        shapes: Of the inputs and the outputs.
    """

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    buffers: dict[str, _Buffer] = field(default_factory=dict)


class EngineSession:
    """An engine that is ready to run.

    Args:
        trt: The runtime's module.
        engine: The serialized engine.
        driver: Open, in this thread.
        channel: Where the runtime's log goes.

    Raises:
        EngineError: The runtime refuses the engine.
    """

    def __init__(self, trt: TrtModule, engine: bytes, driver: CudaDriver, channel: Channel) -> None:
        self._trt, self._driver, self._channel = trt, driver, channel
        self._logger = trt.logger(channel)
        self._runtime = trt.module.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(engine)
        if self._engine is None:
            raise self._refused("the engine cannot be loaded")
        self._context = self._make_context()
        if self._context is None:
            raise self._refused("the engine cannot be prepared to run")
        self._inputs, self._outputs = self._tensors("INPUT"), self._tensors("OUTPUT")

    def run(self, feed: Feed) -> Feed:
        """Run once and bring the outputs back.

        Raises:
            EngineError: The engine was not built for this feed, or fails on it.
            CudaError: The driver fails.
        """
        with self.placed(feed) as inference:
            self.enqueue()
            self._driver.synchronize()
            return {t.name: self._fetch(t, inference) for t in self._outputs}

    @contextmanager
    def placed(self, feed: Feed) -> Iterator[Inference]:
        """Put a feed on the device and point the engine to it; `enqueue` runs it."""
        inference = Inference()
        try:
            for tensor in self._inputs:
                self._place_input(tensor, feed, inference)
            self._settle_shapes()
            for tensor in self._outputs:
                self._place_output(tensor, inference)
            self.point_to(inference)
            yield inference
        finally:
            for buffer in inference.buffers.values():
                if buffer.array is None:
                    self._driver.free(buffer.address)

    def point_to(self, inference: Inference) -> None:
        """Make the next runs use this feed."""
        for tensor in self._inputs:
            self._set_shape(tensor.name, inference.shapes[tensor.name])
        for name, buffer in inference.buffers.items():
            if not self._context.set_tensor_address(name, buffer.address):
                raise self._refused(f"tensor {name!r} cannot be given memory")

    def enqueue(self) -> None:
        """Start one run of the feed that was pointed to."""
        if not self._context.execute_async_v3(self._driver.stream):
            raise self._refused("the engine cannot be run")

    def _make_context(self) -> Native:
        """Let kernels be made for the shapes at once, where this would else happen beside a run."""
        strategy = getattr(self._trt.module, "DynamicShapesKernelSpecializationStrategy", None)
        if strategy is None:
            return self._engine.create_execution_context()
        config = self._engine.create_runtime_config()
        config.dynamic_shapes_kernel_specialization_strategy = strategy.EAGER
        return self._engine.create_execution_context(config)

    def _tensors(self, mode: str) -> tuple[_Tensor, ...]:
        names = map(self._engine.get_tensor_name, range(self._engine.num_io_tensors))
        wanted = getattr(self._trt.module.TensorIOMode, mode)
        return tuple(self._tensor(n) for n in names if self._engine.get_tensor_mode(n) == wanted)

    def _tensor(self, name: str) -> _Tensor:
        kind = str(self._engine.get_tensor_dtype(name)).rpartition(".")[2]
        if kind not in _DTYPES:
            raise EngineError(f"tensor {name!r} has type {kind.lower()}, which NumPy lacks")
        place = self._engine.get_tensor_location(name)
        return _Tensor(name, _DTYPES[kind], place == self._trt.module.TensorLocation.HOST)

    def _place_input(self, tensor: _Tensor, feed: Mapping[str, np.ndarray], to: Inference) -> None:
        if tensor.name not in feed:
            raise EngineError(f"there are no values for input {tensor.name!r}")
        array = feed[tensor.name]
        if array.dtype != tensor.dtype:
            raise EngineError(
                f"input {tensor.name!r} is {array.dtype}, the engine takes {np.dtype(tensor.dtype)}"
            )
        self._set_shape(tensor.name, array.shape)
        to.shapes[tensor.name] = array.shape
        values = np.ascontiguousarray(array).reshape(array.shape)
        buffer = self._reserve(tensor, values.nbytes, to)
        if buffer.array is None:
            self._driver.to_device(buffer.address, values)
        else:
            buffer.array[: values.nbytes] = np.frombuffer(values.tobytes(), np.uint8)
        if tensor.on_host and not self._context.set_tensor_address(tensor.name, buffer.address):
            raise self._refused(f"tensor {tensor.name!r} cannot be given memory")

    def _set_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if not self._context.set_input_shape(name, shape):
            raise self._refused(f"the engine was not built for input {name!r} of shape {shape}")

    def _settle_shapes(self) -> None:
        """Have the shapes of the outputs computed."""
        if missing := self._context.infer_shapes():
            raise self._refused(f"the shape of {missing[0]!r} is not known before a run")

    def _place_output(self, tensor: _Tensor, to: Inference) -> None:
        shape = tuple(self._context.get_tensor_shape(tensor.name))
        if any(dim < 0 for dim in shape):
            raise EngineError(f"the shape of output {tensor.name!r} depends on the values")
        to.shapes[tensor.name] = shape
        self._reserve(tensor, math.prod(shape) * np.dtype(tensor.dtype).itemsize, to)

    def _reserve(self, tensor: _Tensor, nbytes: int, to: Inference) -> _Buffer:
        if tensor.on_host:
            array = np.zeros(max(1, nbytes), np.uint8)
            buffer = _Buffer(array.ctypes.data, array)
        else:
            buffer = _Buffer(self._driver.allocate(nbytes))
        to.buffers[tensor.name] = buffer
        return buffer

    def _fetch(self, tensor: _Tensor, of: Inference) -> np.ndarray:
        buffer, shape = of.buffers[tensor.name], of.shapes[tensor.name]
        result = np.empty(shape, tensor.dtype)
        if buffer.array is None:
            self._driver.to_host(result, buffer.address)
            return result
        return np.frombuffer(buffer.array[: result.nbytes].tobytes(), tensor.dtype).reshape(shape)

    def _refused(self, what: str) -> EngineError:
        """Say what failed, with the first thing that the runtime said about it."""
        said = self._channel.errors[0].strip() if self._channel.errors else ""
        return EngineError(f"{what}: {said[:300]}" if said else what)
