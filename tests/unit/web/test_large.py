"""Ten thousand things in her history and fifty thousand in the catalogue: every page is made in an instant."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from small_field import CHEAP, PASSPHRASE
from visits import Visitor

from tacit.device import Device
from tacit.device.history import Entry
from tacit.random import Key
from tacit.runtimes.federation import Federation
from tacit.runtimes.wire import Request, write_request, write_welcome
from tacit.types import Catalog, Labels, Vocabulary
from tacit.web.own import person_page
from tacit.web.person import Person
from tacit.web.server import serving

ITEMS, HERS, MOST_SECONDS = 50_000, 10_000, 0.3
PATHS = ("/", "/history", "/history?q=thing", "/history?mine=77&page=3", "/sharing", "/sent", "/mine")


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    titles = [f"The {item % 977} thing number {item} of a large catalogue" for item in range(ITEMS)]
    kinds = Labels(np.arange(ITEMS + 1), (np.arange(ITEMS) % 40).astype(np.int32), [f"kind {k}" for k in range(40)])
    catalog = Catalog(Vocabulary(np.arange(ITEMS)), titles, kinds)
    federation = Federation.found("ab" * 16, "large", "fpl", {"local_steps": 24}, catalog)
    with Device.create(tmp_path_factory.mktemp("large") / "d.db", PASSPHRASE, cost=CHEAP) as device:
        device.join(write_welcome(federation, catalog), "here")
        device.history.add([Entry(5 * item, 1_700_000_000 + item) for item in range(HERS)], None)
        shared = federation.sent(federation.first_model(catalog, Key(7)))
        for number in range(3):
            entry = device.learn(write_request(federation, Request(number, shared, True, number - 1)))
            device.release(entry)
            device.sent(entry)
        with serving(person_page(Person(device))) as door:
            yield Visitor(door)


def test_every_page_is_made_in_an_instant(visitor: Visitor) -> None:
    visitor.get("/sent")  # what is compiled or imported at first is not counted
    for path in PATHS:
        before = time.process_time()  # of the whole process: a busy machine does not count
        page = visitor.get(path)
        spent = time.process_time() - before
        assert page.status == 200
        assert len(page.body) < 200_000, f"{path} is paged"
        assert spent < MOST_SECONDS, f"{path} took {spent:.2f} s"


def test_after_a_change_too(visitor: Visitor) -> None:
    visitor.post("/history/add", {"item": "3"})
    for path in ("/history", "/", "/sent"):
        before = time.process_time()
        assert visitor.get(path).status == 200
        assert time.process_time() - before < MOST_SECONDS
