"""Fixtures that every test may use, and a bound on how long each may take."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

pytest.register_assert_rewrite("helpers")
SECONDS = {"fuzz": 10_800.0, "reproduce": 10_800.0, "data": 1800.0, "slow": 1800.0}  # the first that fits
QUICK = 600.0  # seconds for a test without such a mark: only one that hangs takes so long
STDERR = pytest.StashKey[int]()
MEMORY, LEAST_FREE = Path("/dev/shm"), 2**31  # files in memory, where there is room and programs may be run


# Nothing that a test asserts depends on how fast the machine is: hypothesis does not look at the clock either.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")


def write_to_memory() -> None:
    """Keep the files of tests in memory: a device or coordinator waits for the disk with every write."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > LEAST_FREE
    if has_room and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure(config: pytest.Config) -> None:
    write_to_memory()
    assert sys.__stderr__ is not None
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno())  # as it is before output is captured


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


def bound_time(item: pytest.Item) -> Generator[None, object, object]:
    from helpers.waiting import fail_after  # not earlier: pytest explains assertions only of what it imports later

    seconds = next((seconds for mark, seconds in SECONDS.items() if item.get_closest_marker(mark)), QUICK)
    with fail_after(seconds, item.config.stash[STDERR]):
        return (yield)


pytest_runtest_setup = pytest.hookimpl(wrapper=True)(bound_time)
pytest_runtest_call = pytest.hookimpl(wrapper=True)(bound_time)
pytest_runtest_teardown = pytest.hookimpl(wrapper=True)(bound_time)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Undo what a command in this process did to our log: its handler writes to a channel that ends with the test."""
    logger = logging.getLogger("tacit")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return the folder of a real dataset under TACIT_DATA, or skip the test by name with the reason."""

    def find(name: str) -> Path:
        root = os.environ.get("TACIT_DATA")
        if not root:
            pytest.skip(f"{name}: TACIT_DATA is not set, so no real data is at hand")
        folder = Path(root) / name
        if not folder.is_dir():
            pytest.skip(f"{name}: not found under TACIT_DATA")
        return folder

    return find
