"""An item that joins a running federation: devices recommend it before any history has it, by its public vector."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers import town_federation
from helpers.loopback_federation import CARE, KNOWN, Field, masked
from tacit.data.vectors import to_half_precision
from tacit.errors import DataError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.catalogue_file import continue_catalogue
from tacit.field.coordinator import CoordinatorJournal
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.types import Catalog, Clients, Labels, Vocabulary
from tacit.wire.amendments import write_amendment, write_chain

ROUNDS, NEW = 2, 10_000
METHODS = ["fed-svd", "fed-als", "fed-ease", "fed-slist"]
plain_town = town_federation.town


def vector_town(people: int = 5) -> tuple[Clients, Catalog]:
    """The town with a vector of each place: what categories it has."""
    clients, catalog = plain_town(people)
    assert catalog.categories is not None
    return clients, replace(catalog, vectors=to_half_precision(catalog.categories.matrix().toarray()))


@pytest.fixture
def cold_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Federations whose methods make rows from vectors, fed-svd's in two steps and with those of histories."""
    monkeypatch.setattr("helpers.loopback_federation.town", vector_town)
    for name in METHODS:
        given = town_federation.OPTIONS.get(name, {})
        of_svd = {"features": 8, "content": 0.5} if name == "fed-svd" else {}
        cold = {"reg": 0.1, "boost": 50.0, **of_svd}
        monkeypatch.setitem(town_federation.OPTIONS, name, {**given, "cold_items": cold})


def add_item(field: Field, like: int) -> None:
    """Publish one more item, with the vector and the categories of another one."""
    catalog = field.journal.catalog
    labels, vectors = catalog.categories, catalog.vectors
    assert labels is not None
    assert catalog.titles is not None
    assert vectors is not None
    own = labels.ids[labels.ptr[like] : labels.ptr[like + 1]]
    later = Catalog(
        Vocabulary(np.append(catalog.item_ids.labels, NEW)),
        [*catalog.titles, "A new place"],
        Labels(np.append(labels.ptr, len(labels.ids) + len(own)), np.append(labels.ids, own), labels.names),
        vectors=np.vstack([vectors, vectors[like]]),
    )
    field.journal.publish(continue_catalogue(catalog, later))
    field.journal.close()
    field.journal = CoordinatorJournal.open(field.folder / "journal.db")


@pytest.mark.parametrize("change", ["narrower", "none"])
def test_a_device_refuses_a_catalogue_whose_vectors_do_not_fit_its_model(
    change: str, cold_methods: None, tmp_path: Path
) -> None:
    """An operator's own program publishes none; a coordinator that lies may."""
    field = Field(tmp_path, "fed-svd")
    journal, catalog = field.journal, field.journal.catalog
    assert catalog.vectors is not None
    later = replace(catalog, vectors=np.ascontiguousarray(catalog.vectors[:, :-1]) if change == "narrower" else None)
    content, _ = write_amendment(journal.federation, catalog, later, None)
    device = next(iter(field.devices.values()))
    before = device.membership
    with pytest.raises(WireError, match="width"):
        device.terms.amend(write_chain([content]))
    assert before is not None
    assert device.membership is not None
    assert device.membership.federation.digest == before.federation.digest


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_new_item_is_recommended_before_any_history_has_it(method: str, cold_methods: None, tmp_path: Path) -> None:
    field = Field(tmp_path, method)
    field.run(Loopback(field.devices, field.journal.amendments.since), rounds=ROUNDS, secure=None)
    person = field.people()[0]
    liked = int(field.clients.of(0)[0])
    assert NEW not in [found.item for found in person.recommend(field.catalog.n_items)]
    add_item(field, liked)
    for device in field.devices.values():
        device.terms.amend(field.journal.amendments.since(field.federation.digest))
    listed = [found.item for found in person.recommend(field.catalog.n_items + 1)]
    assert NEW in listed[:10]
    field.run(Loopback(field.devices, field.journal.amendments.since), rounds=ROUNDS + 1, secure=None)
    assert NEW in [found.item for found in person.recommend(10)]
    assert field.journal.rounds.records()[-1].state == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_masked_rounds_give_the_map_of_the_simulator_bit_for_bit(
    method: str, cold_methods: None, tmp_path: Path
) -> None:
    field = masked(tmp_path, method)
    shared = field.run(rounds=ROUNDS, **KNOWN, secure={**CARE, "two_stage": True}).shared
    secure = SecureRoundsConfig(**CARE, two_stage=True)
    expected = town_federation.simulated(field.federation, field.clients, field.catalog, ROUNDS, secure=secure).shared
    assert shared["cold_map"].any()
    assert ("first_cold_map" in shared) == (method == "fed-svd")
    for name in {"first_cold_map", "cold_map", "known"} & {*shared}:
        assert np.array_equal(shared[name], expected[name]), name


def test_a_later_catalogue_without_vectors_or_with_other_widths_is_refused(cold_methods: None, tmp_path: Path) -> None:
    _, catalog = vector_town()
    assert catalog.vectors is not None
    for vectors in (None, catalog.vectors[:, :-1]):
        with pytest.raises(DataError, match="vectors"):
            continue_catalogue(catalog, replace(catalog, vectors=vectors))
