"""Pictures, with the extra `plot`."""

from __future__ import annotations

import importlib
from typing import Any

from lilliput.errors import MissingExtraError


def pyplot() -> Any:
    """matplotlib, drawing to files only. Ask before the work, so that a missing extra is not found out after it.

    Raises MissingExtraError.
    """
    try:
        importlib.import_module("matplotlib").use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingExtraError("a picture (--plot)", "plot") from error
