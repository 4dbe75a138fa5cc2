"""Time is no verdict: a property holds or not, on a busy machine as on a quiet one."""

import gc
import sys
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import QUICK

if TYPE_CHECKING:
    import execnet

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=QUICK)
settings.register_profile("long", settings.get_profile("tests"), max_examples=1_000)
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what all tests share, a million objects, from the garbage collector: a tenth of the time of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(300_000, 20, 100)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: "Sequence[execnet.XSpec]") -> None:
    """Fork the workers of a run of all tests from a process that has collected them; a few tests gain nothing by it."""
    if sys.platform == "linux" and len(specs) > 1 and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        from tests.workers import fork_from_one

        fork_from_one(config, specs)
