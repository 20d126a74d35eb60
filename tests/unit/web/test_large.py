"""Ten thousand things in the history and fifty thousand in the catalogue: every page is there, and is paged.

How fast they are made is measured by `make bench ONLY=pages`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from helpers.page_visitor import Visitor
from helpers.small_federation import CHEAP, PASSPHRASE
from tacit.field.device import Device
from tacit.field.device.history import HistoryEntry
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Labels, Vocabulary
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, write_request, write_welcome

pytestmark = pytest.mark.slow

ITEMS, HISTORY, MOST_BYTES = 50_000, 10_000, 200_000
PATHS = ("/", "/history", "/history?q=thing", "/history?mine=77&page=3", "/sharing", "/sent", "/mine")


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    titles = [f"The {item % 977} thing number {item} of a large catalogue" for item in range(ITEMS)]
    kinds = Labels(np.arange(ITEMS + 1), (np.arange(ITEMS) % 40).astype(np.int32), [f"kind {k}" for k in range(40)])
    catalog = Catalog(Vocabulary(np.arange(ITEMS)), titles, kinds)
    federation = Federation.create("ab" * 16, "large", "fpl", {"local_steps": 24}, catalog)
    with Device.create(tmp_path_factory.mktemp("large") / "d.db", PASSPHRASE, cost=CHEAP) as device:
        device.join(write_welcome(federation, catalog), "here", accepts={ReasonCode.NO_GUARANTEE})
        device.change(lambda before: before.model_copy(update={"masked_only": False}))
        device.history.add([HistoryEntry(5 * item, 1_700_000_000 + item) for item in range(HISTORY)], None)
        shared = federation.download(federation.first_model(catalog, Key(7)))
        for number in range(3):
            entry = device.learn(write_request(federation, Request(number, shared, True, number - 1)))
            device.release(entry)
            device.answers.mark_sent(entry)
        with serving(build_user_page(DeviceView(device))) as address:
            yield Visitor(address)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_paged(visitor: Visitor, path: str) -> None:
    page = visitor.get(path)
    assert page.status == 200
    assert len(page.body) < MOST_BYTES, f"{path} is {len(page.body)} bytes"


def test_after_a_change_too(visitor: Visitor) -> None:
    visitor.post("/history/add", {"item": "3"})
    for path in ("/history", "/", "/sent"):
        page = visitor.get(path)
        assert page.status == 200
        assert len(page.body) < MOST_BYTES, f"{path} is {len(page.body)} bytes"
