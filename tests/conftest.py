"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_synth import k3_sparse, mini, tiny_synth  # noqa: F401  (fixtures of the whole session)
from hypothesis import HealthCheck, settings

import lilliput

ROOT = Path(__file__).resolve().parent.parent
# A suite started in the background of a script inherits an ignored Ctrl-C: the tests that interrupt would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What whoever starts the tests thinks of terminals and languages is not tested; programs started by tests would follow it.
for name in list(os.environ):
    if name.startswith("LC_") or name in (
        "LANG",
        "LANGUAGE",
        "COLUMNS",
        "LINES",
        "FORCE_COLOR",
        "NO_COLOR",
        "TTY_COMPATIBLE",
        "LILLIPUT_ISA",
    ):
        del os.environ[name]

# The same commit gives the same answer, however slow the machine. `make hunt` looks for examples that nobody has tried yet, in CI as well.
UNTIMED = settings(settings.get_profile("default"), deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False)
settings.register_profile("repeatable", UNTIMED, derandomize=True, database=None)
settings.register_profile("hunt", UNTIMED)
settings.load_profile("repeatable")
# Hypothesis also tries the constants of our modules that are loaded by then: all are from the start, whichever tests a worker ran before.
for module in pkgutil.walk_packages(lilliput.__path__, "lilliput."):
    importlib.import_module(module.name)

REQUIRE_ALL = os.environ.get("LILLIPUT_REQUIRE_ALL") == "1"


def missing(what: str) -> None:
    """Skip because this machine lacks something; a failure where everything is required (CI)."""
    if REQUIRE_ALL:
        pytest.fail(f"{what}, and LILLIPUT_REQUIRE_ALL=1 makes that a failure")
    pytest.skip(what)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of facts from the release; not part of the repository."""
    found = ROOT.parent / "shared" / "data"
    if not found.is_dir():
        missing("../shared/data is not here")
    return found


@pytest.fixture(scope="session", params=["tiny-a", "tiny-b"])
def oracle(request: pytest.FixtureRequest) -> Path:
    """Directory of an independent reference checkpoint with its recorded outputs."""
    return ROOT / "tests" / "oracle" / str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For fixtures that live longer than a test: neither the user's files nor an engine the user is running may matter to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LILLIPUT_CACHE", str(tmp_path_factory.mktemp("session-cache") / "lilliput"))
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of its own (not made yet) for every test: the user's is neither read nor written."""
    place = tmp_path_factory.mktemp("cache") / "lilliput"
    monkeypatch.setenv("LILLIPUT_CACHE", str(place))
    return place


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A well-formed checkpoint of zeros in two shards, of the configuration `helpers_checkpoint.SMALL`."""
    from helpers_checkpoint import SMALL, write_checkpoint

    return write_checkpoint(tmp_path / "model", SMALL)
