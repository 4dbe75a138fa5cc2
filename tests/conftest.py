"""Time is no verdict: a property holds or not, on a busy machine as on a quiet one."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import QUICK

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
