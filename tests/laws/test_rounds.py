"""What holds for every federated method when devices drop out, break or lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tacit.errors import DivergedError
from tacit.lab.adversaries import Adversaries, AdversaryConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build, entry, names, options
from tacit.privacy.draft import Draft
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath, device_round
from tacit.protocols.robust import RobustConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.types import Catalog, Clients, Labels, Model, Vocabulary, offsets
from tacit.updates import Message, Ring

FEDERATED = names("federated")
KEY, RING = Key(7).child("learn"), Ring()


@pytest.fixture(scope="module")
def world() -> tuple[Clients, Catalog]:
    """Forty people, thirty items; the first half like the first half."""
    rng = np.random.default_rng(3)
    rows = [np.sort(rng.choice(15, 6, replace=False) + (15 if c >= 20 else 0)) for c in range(40)]
    items = np.concatenate(rows).astype(np.int32)
    times = np.arange(len(items)) * 86_400 % 1_000_003
    clients = Clients(np.arange(40), offsets(np.array([len(r) for r in rows])), items, 30, times=times)
    kinds = Labels(np.arange(31), (np.arange(30) // 5).astype(np.int32), list("abcdef"))
    return clients, Catalog(Vocabulary(np.arange(100, 130)), categories=kinds)


def quick(name: str) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 3, "factors": 6, "learning_rate": 0.05, "clients_per_round": 12}
    return build(name, options(name, {k: v for k, v in few.items() if k in fields}))


def final(name: str, world: tuple[Clients, Catalog], stages: Sequence[Any] = (), **given: Any) -> tuple[Model, Traffic]:
    traffic = Traffic.none(len(world[0]))
    path = UpdatePath(quick(name), stages, RING)
    for model in simulate(path, *world, KEY, traffic, SimulationOptions(**given)):
        last = model
    return last.copy(), traffic


def assert_same(left: tuple[Model, Traffic], right: tuple[Model, Traffic]) -> None:
    for a, b in ((left[0].shared, right[0].shared), (left[0].private, right[0].private)):
        assert all(np.array_equal(a[name], b[name]) for name in a)
    assert all(np.array_equal(a, b) for a, b in zip(vars(left[1]).values(), vars(right[1]).values(), strict=True))


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize(
    "rounds",
    [
        RoundsConfig(dropout=0.3),
        RoundsConfig(dropout=0.3, over_selection=0.5, minimum=5),
        RoundsConfig(robust=RobustConfig(rule="median", groups=4)),
    ],
    ids=["dropout", "spares", "median"],
)
def test_sums_made_at_once_equal_messages_when_devices_drop_out(name: str, rounds: RoundsConfig, world: Any) -> None:
    plain, at_once = (final(name, world, rounds=rounds, reference=p) for p in (True, False))
    assert_same(plain, at_once)
    if rounds.dropout:
        assert plain[1].lost.sum() > 0
    assert (plain[1].bytes_down > 0).any()


@pytest.mark.parametrize("name", FEDERATED)
def test_when_every_round_is_given_up_the_model_stays_as_it_was(name: str, world: Any) -> None:
    method = quick(name)
    before = method.init(*world, KEY.child("init"))
    after, traffic = final(name, world, rounds=RoundsConfig(dropout=0.5, minimum=40))
    assert all(np.array_equal(before.shared[n], after.shared[n]) for n in before.shared)
    assert all(np.array_equal(before.private[n], after.private[n]) for n in before.private)
    assert traffic.rounds.sum() == 0
    assert traffic.bytes_up.sum() == 0
    assert traffic.lost.sum() > 0


class _Breaks(Stage):
    """A stage that turns what some clients send into no numbers."""

    shapes_values = True

    def __init__(self, broken: Sequence[int]) -> None:
        self.broken = broken

    def shape(self, draft: Draft, key: Key) -> None:
        draft.multiply(np.where(np.isin(draft.clients, self.broken), np.nan, 1.0).astype(np.float32))


@pytest.mark.parametrize("name", FEDERATED)
def test_a_broken_device_is_refused_and_counted_and_the_round_goes_on(name: str, world: Any) -> None:
    model, traffic = final(name, world, [_Breaks([3])])
    assert all(np.isfinite(array).all() for array in model.shared.values() if array.dtype.kind == "f")
    assert traffic.refused[3] > 0
    assert traffic.refused.sum() == traffic.refused[3]
    assert traffic.bytes_up[3] == 0
    assert traffic.rounds[3] == 0
    start = quick(name).init(*world, KEY.child("init"))
    assert all(np.array_equal(start.private[n][3], model.private[n][3]) for n in start.private)


@pytest.mark.parametrize("name", FEDERATED)
def test_when_most_devices_break_the_run_stops_with_a_hint(name: str, world: Any) -> None:
    with pytest.raises(DivergedError, match="learning_rate"):
        final(name, world, [_Breaks(range(5, 40))])


@pytest.mark.parametrize("name", ["fpl", "fed-gmf"])
@pytest.mark.parametrize("kind", ["sign-flip", "noise", "promote", "nan"])
def test_attacks_do_not_depend_on_who_is_simulated_together(name: str, kind: str, world: Any) -> None:
    config = AdversaryConfig.from_options(
        {"kind": kind, "share": 0.3, "item": 104 if kind == "promote" else None}, "liars"
    )
    adversaries = Adversaries.build(config, world[1], RING, Key(2), ("items",))
    method, (clients, _) = quick(name), world
    model = method.init(*world, KEY.child("init"))

    def sent(positions: list[int]) -> Message:
        at = np.array(positions)
        path = UpdatePath(method, (), RING)
        message = device_round(path, model.take(at), clients.take(at), KEY, 0).message
        assert message is not None
        return message

    honest = sent(list(range(len(clients))))
    together = adversaries.tamper(honest, KEY)
    lying = adversaries.among(clients.ids)
    assert 3 < lying.sum() < 25
    for c in (int(np.flatnonzero(lying)[0]), int(np.flatnonzero(~lying)[0])):
        alone = adversaries.tamper(sent([c]), KEY)
        if kind == "nan" and lying[c]:
            assert alone.withheld.tolist() == [c]
            assert c in together.withheld
            continue
        at = int(np.flatnonzero(together.clients == c)[0])
        for table, (ptr, ids, numbers) in together.tables.items():
            rows = slice(int(ptr[at]), int(ptr[at + 1]))
            assert np.array_equal(ids[rows], alone.tables[table][1])
            assert np.array_equal(numbers[rows], alone.tables[table][2])
        same = all(np.array_equal(rows[2], alone.tables[t][2]) for t, rows in sent([c]).tables.items())
        assert same != lying[c]


def test_a_median_over_groups_bears_with_what_a_plain_sum_does_not(world: Any) -> None:
    config = AdversaryConfig(kind="noise", share=0.2, strength=5.0)
    adversaries = Adversaries.build(config, world[1], RING, Key(2), ("items",))
    moved = {}
    for label, rule in (("sum", None), ("median", RobustConfig(rule="median"))):
        rounds = RoundsConfig(robust=rule)
        honest, attacked = (final("fed-gmf", world, rounds=rounds, adversaries=who)[0] for who in (None, adversaries))
        moved[label] = float(np.abs(attacked.shared["items"] - honest.shared["items"]).mean())
    assert moved["median"] < 0.7 * moved["sum"]
