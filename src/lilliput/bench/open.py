"""How long a checkpoint takes to open, and how much memory that takes: each measurement in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from lilliput.errors import LilliputError
from lilliput.weights.shards import open_directory

RUNS = 3

# /proc's high-water mark belongs to the process's own memory; ru_maxrss (where there is no /proc) can be inherited from the parent.
_CHILD = """
import json, sys, time
from pathlib import Path
from lilliput.errors import LilliputError
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.weights.checkpoint import Checkpoint

def peak():
    try:
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

directory, cache = Path(sys.argv[1]), sys.argv[2] == "cache"
before = peak()
start = time.perf_counter()
try:
    found = Checkpoint.open(directory, layout(read_config(directory)), cache=cache)
except LilliputError as error:
    print(json.dumps({"error": str(error), "code": error.exit_code}))
    raise SystemExit(0)
seconds = time.perf_counter() - start
experts = found.experts.file.size if found.experts else 0
print(json.dumps({"seconds": seconds, "peak_rss_growth": peak() - before, "from_sidecar": found.from_sidecar,
                  "files": len(found.files), "bytes": sum(found.sizes), "tensors": len(found.tensors) + experts}))
"""


def measure_open(directory: Path | str) -> dict[str, Any]:
    """Opens a checkpoint with and without its index sidecar, three times each, in fresh processes.

    `files`, `bytes`, `tensors` (of the text model) describe it; `headers` (every header read) and `sidecar` hold `seconds` (median, lowest,
    highest; config and layout included), and `peak_rss_growth`, the largest growth of the peak over the imports, in bytes.
    The sidecar goes to a temporary cache, so the user's own is neither used nor changed. An error carries the exit code of what went wrong.
    """
    path = open_directory(directory)
    with tempfile.TemporaryDirectory() as cache:
        headers = [_run(path, "no cache", cache) for _ in range(RUNS)]
        _run(path, "cache", cache)  # writes it
        sidecar = [_run(path, "cache", cache) for _ in range(RUNS)]
    about = {key: headers[0][key] for key in ("files", "bytes", "tensors")}
    return about | {"headers": _summary(headers), "sidecar": _summary(sidecar) | {"used": all(r["from_sidecar"] for r in sidecar)}}


def _run(directory: Path, mode: str, cache: str) -> dict[str, Any]:
    environment = os.environ | {"LILLIPUT_CACHE": cache}
    command = [sys.executable, "-c", _CHILD, str(directory), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LilliputError(f"opening {directory} in a process of its own failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    if "error" in result:
        error = LilliputError(result["error"])
        error.exit_code = result["code"]
        raise error
    return result


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [r["seconds"] for r in runs]
    spread = {"median": median(seconds), "lowest": min(seconds), "highest": max(seconds)}
    return {"runs": len(runs), "seconds": spread, "peak_rss_growth": max(r["peak_rss_growth"] for r in runs)}
