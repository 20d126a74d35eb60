"""A catalogue that changes in a running federation: devices follow, nothing learnt is lost, nothing is mixed up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.loopback_federation import KNOWN, Field, masked
from helpers.town_federation import reopened
from tacit.errors import StorageError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.catalogue_file import compare_catalogues, continue_catalogue
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device.history import HistoryEntry
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Labels, Vocabulary
from tacit.wire.amendments import read_amendment, read_chain, write_amendment, write_chain
from tacit.wire.envelope import AMENDMENT, seal_message, unseal_message
from tacit.wire.federation import Federation
from tacit.wire.messages import open_welcome

RULES = RoundRules(rounds=7, readable=True, secure=None)


def grown(catalog: Catalog, n_new: int = 3, retired: tuple[int, ...] = (), renamed: tuple[int, ...] = ()) -> Catalog:
    """The catalogue as an operator writes it later: in another order, with more items."""
    n = catalog.n_items
    assert catalog.titles is not None
    assert catalog.categories is not None
    labels = [*catalog.item_ids.labels.tolist(), *(10_000 + n + new for new in range(n_new))]
    titles = [*catalog.titles, *(f"New {n + new}" for new in range(n_new))]
    titles = [f"{title}, again" if item in renamed else title for item, title in enumerate(titles)]
    rows = [catalog.categories.of(item) for item in range(n)] + [["Novelty"]] * n_new
    every = sorted({name for row in rows for name in row})
    ids = np.array([every.index(name) for row in rows for name in row], np.int32)
    ptr = np.cumsum([0, *map(len, rows)])
    given = Catalog(Vocabulary(np.array(labels)), titles, Labels(ptr, ids, every), retired=np.array(retired, np.int32))
    return given.take(np.arange(n + n_new)[::-1])


def publish(field: Field, n_new: int = 3, retired: tuple[int, ...] = (), renamed: tuple[int, ...] = ()) -> Catalog:
    """Stop the coordinator, change the catalogue, and open it again."""
    before = field.journal.catalog
    after = continue_catalogue(before, grown(before, n_new, retired, renamed))
    field.journal.publish(after)
    field.journal.close()
    field.journal = CoordinatorJournal.open(field.folder / "journal.db")
    return field.journal.catalog


def on(field: Field) -> Loopback:
    return Loopback(field.devices, field.journal.amendments.since)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fpl", "fed-svd", "kgflex", "fedfast"])
def test_methods_learn_on_with_a_catalogue_that_changed_twice(method: str, tmp_path: Path) -> None:
    """A device that was there for both changes, one that was away for one, and one that was away for two."""
    field, readable = Field(tmp_path, method), {"secure": None}
    field.run(on(field), rounds=1, **readable)
    publish(field, 3, retired=(4,), renamed=(7,))
    late = field.devices.pop(5)
    field.run(on(field), rounds=2, **readable)
    catalog = publish(field, 2, retired=(4,))
    field.devices[5] = late
    field.run(on(field), rounds=3, **readable)
    assert [(r.state, r.answered) for r in field.journal.rounds.records()] == [("finished", n) for n in (5, 4, 5)]
    assert catalog.n_items == field.catalog.n_items + 5
    for device in field.devices.values():
        assert device.membership is not None
        assert device.membership.federation == field.journal.federation
        assert device.catalog.title(7).endswith(", again")
        assert [note.number for note in device.terms.amendments] == [1, 2]
        assert field.catalog.item_ids[4] not in [found.item for found in device.recommend(catalog.n_items)]
        assert {10_000 + field.catalog.n_items, 10_000 + catalog.n_items - 2} <= {
            found.item for found in device.recommend(catalog.n_items)
        }


@pytest.mark.slow
def test_what_devices_remember_of_sums_holds_over_amendments(tmp_path: Path) -> None:
    """Cool-downs and cohorts are of the federation, not of one version of its catalogue."""
    field = masked(tmp_path)
    field.run(on(field), rounds=1, **KNOWN)
    publish(field)
    field.run(on(field), rounds=2, **KNOWN)
    rounds = field.journal.rounds.records()
    assert [(r.state, r.masked, r.answered) for r in rounds] == [("finished", 1, 5)] * 2
    for device in field.devices.values():
        assert device._masked._machine is not None
        history = device._masked._machine.history
        assert {past.round for past in history.sums} == {0, 1}
        assert not history.others


def test_rows_of_items_keep_their_meaning(tmp_path: Path) -> None:
    """Rows of the model stay where they were; what is new begins as in a first model."""
    field = Field(tmp_path, "fpl")
    before = field.run(on(field), rounds=2, secure=None).shared["items"]
    publish(field, 4)
    coordinator = Coordinator(field.journal, RULES, Loopback({}))
    after, first = coordinator.shared["items"], coordinator._model.first_model(1)["items"]
    assert np.array_equal(after[: len(before)], before)
    assert np.array_equal(after[len(before) :], first[len(before) :])


def test_a_device_that_joins_later_has_the_whole_catalogue(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    publish(field, 3, retired=(2,))
    device = field.devices[1]
    device.leave()
    device.join(field.journal.welcome, accepts={ReasonCode.NO_GUARANTEE})
    assert device.catalog.n_items == field.catalog.n_items + 3
    assert device.catalog.retired is not None
    assert device.catalog.retired.tolist() == [2]


def test_what_a_user_never_shares_stays_unshared_when_items_change_their_category(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    device = field.devices[1]
    assert field.catalog.categories is not None
    name = field.catalog.categories.of(0)[0]
    device.change(lambda before: before.model_copy(update={"never_categories": (name,)}))
    forbidden = [item for item in range(field.catalog.n_items) if name in field.catalog.categories.of(item)]
    later = grown(field.journal.catalog, 0)
    rows = [
        ["elsewhere"] if name in later.categories.of(at) else later.categories.of(at) for at in range(later.n_items)
    ]  # type: ignore[union-attr]
    every = sorted({one for row in rows for one in row})
    ids = np.array([every.index(one) for row in rows for one in row], np.int32)
    moved = replace(later, categories=Labels(np.cumsum([0, *map(len, rows)]), ids, every))
    field.journal.publish(continue_catalogue(field.journal.catalog, moved))
    device.terms.amend(field.journal.amendments.since(field.federation.digest))
    assert {*device.sharing.never_items} == {field.catalog.item_ids[item] for item in forbidden}
    assert device.sharing.stage(0, device.catalog) is not None


# --- a chain is followed, or refused ----------------------------------------------------------------------------------


def test_an_amendment_that_does_not_follow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    welcome, first = field.journal.welcome, field.federation.digest
    publish(field)
    publish(field)
    device, chain = field.devices[1], read_chain(field.journal.amendments.since(first))
    for wrong, code in (
        (write_chain(chain[1:]), ReasonCode.BROKEN_CHAIN),
        (write_chain([chain[0], chain[0]]), ReasonCode.BROKEN_CHAIN),
        (b"", ReasonCode.UNKNOWN_VERSION),
    ):
        with pytest.raises(WireError) as refused:
            device.terms.amend(wrong)
        assert refused.value.code == code
    for cut in (write_chain(chain)[:-1], write_chain(chain)[:2], write_chain([chain[0][:-3]])):
        with pytest.raises(WireError):
            device.terms.amend(cut)
    assert device.membership is not None
    assert device.membership.federation.digest == first
    device.terms.amend(write_chain(chain))
    assert device.membership.federation == field.journal.federation
    assert open_welcome(welcome)[0].lineage == device.membership.federation.lineage


def test_only_the_authority_amends(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    own, other = Identity.fresh(), Identity.fresh()
    terms = {name: getattr(field.federation, name) for name in Federation.model_fields}
    federation = Federation(**{**terms, "authority": own.public.hex()})
    after = continue_catalogue(field.catalog, grown(field.catalog))
    right, amended = write_amendment(federation, field.catalog, after, own)
    assert read_amendment(right, federation, field.catalog).federation == amended.federation
    for key in (None, other):
        forged, _ = write_amendment(federation, field.catalog, after, key)
        with pytest.raises(WireError) as refused:
            read_amendment(forged, federation, field.catalog)
        assert refused.value.code == ReasonCode.UNSIGNED_AMENDMENT
    _, digest, number, body = unseal_message(right, (AMENDMENT,))
    for at in range(0, len(body), 7):
        flipped = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        with pytest.raises(WireError):
            read_amendment(seal_message(AMENDMENT, digest, number, flipped), federation, field.catalog)


def test_a_device_that_the_coordinator_no_longer_knows_says_so(tmp_path: Path) -> None:
    """The coordinator was restored from a copy made before the last amendment."""
    field = Field(tmp_path, "fpl")
    copy = (tmp_path / "journal.db").read_bytes()
    publish(field)
    field.run(on(field), rounds=1, secure=None)
    field.journal.close()
    (tmp_path / "journal.db").write_bytes(copy)
    field.journal = CoordinatorJournal.open(tmp_path / "journal.db")
    content = next(
        iter(Coordinator(field.journal, RULES, on(field))._write_models(field.journal.members.devices()).values())
    )
    assert field.devices[1].terms.is_behind(content)
    with pytest.raises(WireError) as refused:
        on(field).tell({1: content}, 0)
    assert refused.value.code == ReasonCode.UNKNOWN_VERSION
    assert field.devices[1].recommend(3)


# --- models that are in force again -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_federation_is_rolled_back_and_devices_know_it(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    models = [field.run(on(field), rounds=rounds, secure=None).shared["items"].copy() for rounds in (1, 2, 3)]
    publish(field)
    field.run(on(field), rounds=4, secure=None)
    with pytest.raises(StorageError, match=r"rounds 3, 2, 1, 0\."):
        field.journal.roll_back(9)
    field.journal.roll_back(1)
    field.reopen()
    coordinator = Coordinator(field.journal, RULES, on(field))
    assert np.array_equal(coordinator.shared["items"][: len(models[1])], models[1])
    coordinator.run()
    rounds = field.journal.rounds.records()
    assert [r.state for r in rounds] == [*["finished"] * 4, "rolled back", "finished", "finished", "finished"]
    for device in field.devices.values():
        assert [note.rolled_back_to for note in device.terms.amendments] == [None, 1]
        model = device.membership.model() if device.membership is not None else None
        assert model is not None
        assert np.array_equal(model.shared["items"], coordinator.shared["items"])


def test_a_device_restarts_between_amendment_and_model(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-neumf")
    field.run(on(field), rounds=2, secure=None)
    publish(field)
    device = field.devices[1]
    before = {found.item: found.score for found in device.recommend(60)}
    device.terms.amend(field.journal.amendments.since(field.federation.digest))
    device.close()
    field.devices[1] = again = reopened(tmp_path, 0)
    later = {found.item: found.score for found in again.recommend(63)}
    assert all(abs(later[item] - score) < 1e-5 for item, score in before.items())
    again.history.add([HistoryEntry(10_000 + field.catalog.n_items)], again.catalog)
    field.run(on(field), rounds=4, secure=None)
    assert [r.answered for r in field.journal.rounds.records()] == [5] * 4


def test_changes_are_counted(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    before = field.journal.catalog
    after = publish(field, 3, retired=(4, 5), renamed=(7,))
    change = compare_catalogues(before, after)
    assert (change.added, change.changed, change.retired, change.returned) == (3, 1, 2, 0)
    back = compare_catalogues(after, publish(field, 0))
    assert (back.added, back.retired, back.returned) == (0, 0, 2)
