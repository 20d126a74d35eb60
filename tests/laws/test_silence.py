"""What a device sends in a secure sum, when, and how much of it, does not depend on what its user did."""

from __future__ import annotations

import secrets
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from helpers.hostile_sessions import EASY, N_PEOPLE, PHASES, HostileCoordinator
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, copy_file, noon
from helpers.town_federation import OPTIONS
from tacit.errors import SecureSumError
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.methods.base import build_federated, names
from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.encoding import VectorLayout
from tacit.protocols.secure_aggregation.two_stage import (
    QUALITY,
    QUALITY_SHAPE,
    RoundContext,
    SecureAggregationConfig,
)
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.updates import Ring
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, model_in, read_request, write_request, write_welcome

MASKABLE = [name for name in names("federated") if not build_federated(name).spec.client_tables]
ITEMS, EXTRA = (1, 2, 5, 9), 12
FINE = Ring(fraction=23)  # holds numbers up to 2
CAREFUL = SecureAggregationConfig(n_min=2, k_min=1, spare=0, corrupted=0.0, dropped=0.0)
LYING = st.fixed_dictionaries(
    {},
    optional={
        "bound": st.sampled_from([1, 7, 1024, 2**15 // N_PEOPLE - 1, 2**30 // N_PEOPLE]),
        "bits": st.sampled_from([16, 32, 64]),
        "rows": st.sampled_from([(), (EXTRA,), (0, 1)]),
    },
)


def made(path: Path, federation: Federation, items: tuple[int, ...]) -> None:
    with Device.create(path, PASSPHRASE, cost=CHEAP, clock=noon, seed=7) as device:
        device.join(write_welcome(federation, CATALOG), accepts={ReasonCode.NO_GUARANTEE})
        device.share(Sharing(device_policy=EASY, masked_only=False))
        device.history.add([HistoryEntry(CATALOG.item_ids[item], 1_700_000_000 + item) for item in items], CATALOG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("silence")


def founded(method: str, ring: Ring | None = None, **more: float) -> Federation:
    return Federation.create("ab" * 16, "silent", method, OPTIONS.get(method, {}) | more, CATALOG, ring=ring)


def poisoned(federation: Federation, scale: float, row: int, value: float) -> bytes:
    """A request whose model is scaled, with one row of every table set to a value."""
    first, shared = federation.first_model(CATALOG, Key(7)), {}
    for name, array in federation.download(first).items():
        array = np.array(array)
        if array.dtype.kind == "f":
            array *= array.dtype.type(scale)
            if array.ndim and array.shape[0] > row:
                array[row] = value
        shared[name] = array
    return write_request(federation, Request(0, shared, True))


def stages(federation: Federation, opening: bytes, two_stage: bool) -> list[Terms]:
    """The honest terms of a round."""
    here = RoundContext(federation.digest.hex(), 0, model_in(opening), secrets.token_bytes(32))
    shapes = federation.built.shapes(federation.first_model(CATALOG, Key(7)))
    if not two_stage:
        return [here.adding_all(shapes, federation.ring, N_PEOPLE, CAREFUL.model_copy(update={"two_stage": False}))]
    both = {**shapes, QUALITY: QUALITY_SHAPE}
    rows = {name: np.arange(shape[0]) for name, shape in both.items()}
    counting = here.counting(both, N_PEOPLE, CAREFUL)
    return [counting, here.adding(both, federation.ring, N_PEOPLE, CAREFUL, rows, 0)]


def bent(terms: Terms, lies: dict[str, object]) -> Terms:
    """Terms whose first part says something else."""
    first, *rest = terms.layout.segments
    return replace(terms, layout=VectorLayout.of([replace(first, **lies), *rest]))  # type: ignore[arg-type]


def two_devices(folder: Path, federation: Federation, items: tuple[int, ...]) -> list[Device]:
    """A device, and the same one with one item more."""
    template = folder / f"{federation.digest.hex()[:12]}-{len(items)}.db"
    if not template.exists():
        made(template, federation, items)
    devices = []
    for name in ("one", "other"):
        path = folder / f"{name}.db"
        path.unlink(missing_ok=True)
        copy_file(template, path)
        devices.append(Device.open(path, PASSPHRASE, noon))
    devices[1].history.add([HistoryEntry(CATALOG.item_ids[EXTRA], 1_700_000_000)], CATALOG)
    return devices


def seen(devices: list[Device], federation: Federation, opening: bytes, asked: list[Terms]) -> list[list[object]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a poisoned model may overflow
        return [[*HostileCoordinator(federation, device).hold(0, opening, asked)] for device in devices]


@pytest.mark.slow
@pytest.mark.parametrize("method", MASKABLE)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    row=st.sampled_from([0, 1, EXTRA]),
    value=st.sampled_from([0.1, 7.5, -900.0, 999.0, -1e6]),
    two_stage=st.booleans(),
    items=st.sampled_from([ITEMS, ()]),
    lies=st.none() | LYING,
)
def test_two_devices_that_differ_in_one_item_send_messages_of_the_same_sizes(
    folder: Path,
    method: str,
    scale: float,
    row: int,
    value: float,
    two_stage: bool,
    items: tuple[int, ...],
    lies: dict[str, object] | None,
) -> None:
    federation = founded(method)
    opening = poisoned(federation, scale, row, value)
    asked = stages(federation, opening, two_stage)
    if lies:
        asked[-1] = bent(asked[-1], lies)
    devices = two_devices(folder, federation, items)
    try:
        one, other = seen(devices, federation, opening, asked)
    except SecureSumError:  # the coordinator's own library refuses such terms
        assume(False)
    finally:
        for device in devices:
            device.close()
    event("to the end" if len(one) == len(asked) * len(PHASES) else "refused")
    assert one == other


def whole(asked: list[Terms]) -> list[tuple[int, str]]:
    return [(terms.stage, phase.name) for terms in asked for phase in PHASES]


@pytest.mark.parametrize("two_stage", [False, True], ids=["one stage", "two stages"])
def test_an_update_that_does_not_fit_the_ring_becomes_zeros(folder: Path, two_stage: bool) -> None:
    federation = founded("fpl", FINE, local_steps=40, learning_rate=0.5)
    opening = poisoned(federation, 1.0, EXTRA, -999.0)
    asked = stages(federation, opening, two_stage)
    devices = two_devices(folder, federation, ITEMS)
    one, other = seen(devices, federation, opening, asked)
    assert one == other
    assert [step[:2] for step in other] == whole(asked)  # type: ignore[index]
    entries = devices[1].ledger.list()
    assert [entry.zeros for entry in entries] == [ReasonCode.UPDATE_TOO_LARGE] * len(asked)
    assert not any(entry.positives or entry.negatives or entry.others or entry.measured for entry in entries)
    for device in devices:
        device.close()


def test_an_empty_history_becomes_zeros_and_leaves_the_private_part_alone(folder: Path) -> None:
    federation = founded("fpl")
    opening = poisoned(federation, 1.0, 0, 0.1)
    asked = stages(federation, opening, False)
    devices = two_devices(folder, federation, ())
    session = HostileCoordinator(federation, devices[0])
    assert [step[:2] for step in session.hold(0, opening, asked)] == whole(asked)
    assert [entry.zeros for entry in devices[0].ledger.list()] == [ReasonCode.EMPTY_HISTORY]
    assert session.servers[-1].total.tobytes() == bytes(len(session.servers[-1].total.tobytes()))
    member = devices[0].membership
    assert member is not None
    assert (member.private(), member.last_private(), member.read_learnt_items()) == (None, None, None)
    for device in devices:
        device.close()


def test_the_private_part_stays_where_a_later_update_does_not_fit(folder: Path) -> None:
    federation = founded("fpl", FINE, local_steps=40, learning_rate=0.5)
    device = two_devices(folder, federation, ITEMS)[1]
    session = HostileCoordinator(federation, device)
    good, poison = poisoned(federation, 1.0, 0, 0.1), poisoned(federation, 1.0, EXTRA, -999.0)
    session.hold(0, good, stages(federation, good, False))
    member = device.membership
    assert member is not None
    learnt = member.last_private()
    assert learnt is not None
    for number, opening in ((1, poison), (2, good)):
        shared = read_request(federation, opening).shared
        later = write_request(federation, Request(number, shared, True, number - 1))
        asked = [replace(one, round=number, model=model_in(later)) for one in stages(federation, later, False)]
        session.hold(number, later, asked)
        if number == 1:
            for place in (member.private(), member.last_private()):
                assert place is not None
                assert np.array_equal(place["p"], learnt["p"])
    assert [entry.zeros for entry in device.ledger.list()] == ["", ReasonCode.UPDATE_TOO_LARGE, ""]
    device.close()


def test_a_model_beyond_what_is_ever_learnt_is_refused_before_learning(folder: Path) -> None:
    federation = founded("fpl")
    opening = poisoned(federation, 1.0, 0, 1e3)
    devices = two_devices(folder, federation, ITEMS)
    for steps in seen(devices, federation, opening, stages(federation, opening, False)):
        assert steps == [(2, "ADVERTS", ReasonCode.MALFORMED_MESSAGE)]
    for device in devices:
        device.close()


@pytest.mark.parametrize("lies", [{"bound": 1024}, {"bits": 32, "bound": 2**20}, {"bound": 2**40}], ids=str)
@pytest.mark.parametrize("two_stage", [False, True], ids=["one stage", "two stages"])
def test_terms_that_the_ring_does_not_give_are_refused(folder: Path, two_stage: bool, lies: dict[str, object]) -> None:
    federation = founded("fpl")
    opening = poisoned(federation, 1.0, 0, 0.1)
    asked = stages(federation, opening, two_stage)
    asked[-1] = bent(asked[-1], lies)
    devices = two_devices(folder, federation, ITEMS)
    for steps in seen(devices, federation, opening, asked):
        assert steps[-1] == (2, "ADVERTS", ReasonCode.OTHER_TERMS)
    for device in devices:
        device.close()
