"""Fixtures of the evaluation room."""

from __future__ import annotations

import pytest

from helpers.random_rankings import World, make_world
from tacit.random import Key


@pytest.fixture
def world() -> World:
    return make_world(1)


@pytest.fixture
def key() -> Key:
    return Key(7)
