"""What measurements depend on: the machine, and the shapes of the released model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import psutil

from lilliput.model.config import Config, config_from_json
from lilliput.synth.shapes import SHAPES, raw_config


def about_machine() -> dict[str, Any]:
    """Processor and memory, as Linux tells them; None for what is not told."""
    cpus = _cpuinfo()
    return {
        "cpus": os.cpu_count(),
        "cpu": cpus.get("model name"),
        "virtual": "hypervisor" in cpus.get("flags", "").split(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def k3() -> Config:
    """The released model's configuration."""
    return config_from_json(msgspec.json.encode(raw_config(SHAPES["k3"])), "config.json")


def _cpuinfo() -> dict[str, str]:
    """Of the first processor, as Linux tells it."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
