"""The real child of `engine_run`, on stand-ins for the driver and the runtime."""

from __future__ import annotations

import os

from optcc.backends import cuda_driver, engine_worker
from optcc.backends.trt_adapter import TrtModule
from tests.backends.fake_device import FakeCuda, FakeModule


def load(name: str) -> TrtModule:
    if name == "crashing":
        os.abort()
    return TrtModule(FakeModule())


if __name__ == "__main__":
    engine_worker.load_module = load
    cuda_driver._load = FakeCuda
    raise SystemExit(engine_worker.main())
