import subprocess
import sys
import time

import numpy as np
import pytest

from optcc.measure.environment import environment, package_versions
from optcc.measure.resources import PeakMemory, StageTimers

linux = pytest.mark.skipif(sys.platform != "linux", reason="children are read from /proc")
HOLD = "import sys; b = bytearray(b'x') * (64 << 20); print('ready', flush=True); sys.stdin.read()"


def hold_64_mib():
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    return child


@linux
def test_children_count():
    with PeakMemory(interval_s=0.005) as alone:
        pass
    with PeakMemory(interval_s=0.005) as memory:
        children = [hold_64_mib() for _ in range(2)]
        time.sleep(0.05)
        for child in children:
            child.communicate("")
    assert memory.peak_mib > alone.peak_mib + 100
    assert "sum over the processes" in memory.method


@linux
def test_children_of_children_in_another_process_group_count():
    nested = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {HOLD!r}], start_new_session=True)"
    )
    with PeakMemory(interval_s=0.005) as memory:
        child = subprocess.Popen(
            [sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "ready\n"
        before = memory.peak_mib
        time.sleep(0.05)
        child.communicate("")
    assert memory.peak_mib >= before > 64


def test_a_short_peak_of_this_process_is_not_missed():
    with PeakMemory(interval_s=1000) as memory:
        held = np.ones(300 << 17)
        del held
    assert memory.peak_mib > 300


def test_peak_is_there_while_it_runs_and_the_thread_ends():
    memory = PeakMemory(interval_s=0.005)
    with memory:
        assert memory.peak_mib > 0
    assert memory._thread is None


def test_stages_add_up_in_order():
    timers = StageTimers()
    for name in ("load", "simplify", "load"):
        with timers.stage(name):
            pass
    with pytest.raises(ZeroDivisionError), timers.stage("lower"):
        _ = 1 / 0
    assert list(timers.seconds) == ["load", "simplify", "lower"]
    assert 0 <= sum(timers.seconds.values()) <= timers.total_s


def test_environment_names_what_matters_and_no_place():
    facts = environment()
    assert {"python", "numpy", "onnxruntime", "os", "cpu", "cores"} <= set(facts)
    assert package_versions().items() <= facts.items()
    assert all("/" not in v or k == "cpu" for k, v in facts.items())
    assert all(isinstance(v, str) and v for v in facts.values())
