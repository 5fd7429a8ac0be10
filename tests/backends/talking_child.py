"""A child for tests: does what its job says."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> int:
    job = json.loads(sys.stdin.readline())
    for number in range(job.get("events", 0)):
        sys.stdout.write(json.dumps({"event": "count", "number": number}) + "\n")
    sys.stdout.write(json.dumps({"event": "world", "seed": os.environ.get("PYTHONHASHSEED")}))
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(job.get("says", ""))
    sys.stderr.flush()
    if job.get("signal"):
        os.kill(os.getpid(), job["signal"])
    time.sleep(job.get("sleep", 0))
    return int(job.get("status", 0))


if __name__ == "__main__":
    raise SystemExit(main())
