"""What every tier of tests needs."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A shell that starts the suite in the background lets it ignore Ctrl-C, and its children inherit that: those that the
# tests interrupt would never notice.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that what failed fails again, and as long for each as a busy machine needs. To look
# for new ones: make test PYTEST="tests/unit --hypothesis-profile=default"
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def signals_put_back() -> Iterator[None]:
    """For tests of what takes Ctrl-C over for its process, which here is the tests'."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
