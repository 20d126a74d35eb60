"""Steps of a server, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.lab.simulation import simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build_federated, options
from tacit.methods.parts.server_steps import TAU, ServerConfig, apply_server_step, server_state
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Vocabulary, offsets
from tacit.updates import Ring

ALL_WAYS = [{"server_optimiser": name, "server_momentum": b} for name in ("sgd", "adam", "yogi") for b in (0.0, 0.5)]
EVERY_WAY = pytest.mark.parametrize("given", ALL_WAYS)


def config_of(**given: Any) -> ServerConfig:
    return ServerConfig.from_options(given, "method")


def after(moves: list[float], **given: Any) -> float:
    """Return where a number that begins at zero is after some moves."""
    config, table = config_of(**given), {"items": np.zeros((1, 1), np.float32)}
    shared: dict[str, Array] = {**table, **server_state(config, table)}
    for move in moves:
        shared = apply_server_step(
            config, shared, {"items": np.array([[move]], np.float32)}, {"items": np.array([True])}
        )
    return float(shared["items"][0, 0])


def test_plain_averaging_makes_the_moves() -> None:
    assert after([0.3, -0.1]) == pytest.approx(0.2)
    assert after([0.3, -0.1], server_rate=2.0) == pytest.approx(0.4)


def test_momentum_goes_on_in_the_direction_of_earlier_moves() -> None:
    assert after([0.4, 0.0, 0.0], server_momentum=0.5) == pytest.approx(0.4 + 0.2 + 0.1)
    assert after([0.4] * 200, server_momentum=0.5) / 200 == pytest.approx(0.8, rel=0.01), "1 / (1 - b) times as far"


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_scaled_steps_are_as_their_paper_has_them(name: str) -> None:
    tau, b, rate, moves = float(TAU), 0.9, 0.1, [0.3, -0.02, 0.0, 0.5]
    m, v, w = 0.0, tau**2, 0.0
    for move in moves:
        m = b * m + (1 - b) * move
        v = 0.99 * v + 0.01 * move**2 if name == "adam" else v - 0.01 * move**2 * np.sign(v - move**2)
        w += rate * m / (np.sqrt(v) + tau)
    assert after(moves, server_optimiser=name, server_momentum=b, server_rate=rate) == pytest.approx(w, rel=1e-4)


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_small_and_large_moves_make_steps_of_about_the_same_size(name: str) -> None:
    small, large = (after([size] * 50, server_optimiser=name) for size in (0.05, 5.0))
    assert large / small == pytest.approx(1, abs=0.1)


@EVERY_WAY
def test_a_row_that_no_client_mentions_stays_and_so_do_its_moments(given: dict[str, Any]) -> None:
    config, table = config_of(**given), {"items": np.arange(6, dtype=np.float32).reshape(3, 2)}
    shared: dict[str, Array] = {**table, **server_state(config, table)}
    all_rows = np.array([True, True, True])
    before = apply_server_step(config, shared, {"items": np.full((3, 2), 0.5, np.float32)}, {"items": all_rows})
    moves = np.array([[0.1, 0.2], [0, 0], [0, 0]], np.float32)
    moved = apply_server_step(config, before, {"items": moves}, {"items": np.array([True, False, True])})
    for name, array in moved.items():
        assert np.array_equal(array[1], before[name][1]), name
        assert array.dtype == np.float32
    assert not np.array_equal(moved["items"][0], before["items"][0])
    goes_on = not np.array_equal(moved["items"][2], before["items"][2])
    assert goes_on == (config.server_momentum > 0), "a move of zero ends nothing where there is momentum"


@EVERY_WAY
def test_devices_do_not_receive_what_a_server_remembers(given: dict[str, Any]) -> None:
    ptr = offsets(np.full(8, 3))
    clients = Clients(np.arange(8), ptr, (np.arange(24) % 11).astype(np.int32), 11)
    received = []
    for options_of in ({}, given):
        method = build_federated("fed-gmf", options("fed-gmf", {"epochs": 1, "factors": 6, **options_of}))
        traffic, path = Traffic.none(8), UpdatePath(method, (), Ring())
        for model in simulate(path, clients, Catalog(Vocabulary(np.arange(11))), Key(0), traffic):
            last = model
        received.append(traffic.bytes_down)
    assert np.array_equal(*received)
    assert set(last.shared) - {"items", "layers"} == set(server_state(method.config, {"items": ptr, "layers": ptr}))
