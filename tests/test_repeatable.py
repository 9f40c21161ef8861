"""What examples are made up must not depend on the tests that ran before."""

import pkgutil
import sys

import lilliput


def test_every_module_is_loaded_from_the_start() -> None:
    assert {module.name for module in pkgutil.walk_packages(lilliput.__path__, "lilliput.")} <= set(sys.modules)
