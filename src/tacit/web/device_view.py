"""The user's view of their device. It stores nothing: the device's file has all state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from typing import Any, Protocol, TypeVar

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from tacit.field.device import Device
from tacit.field.device.device_state import DeviceState, DeviceStateCode, read_state
from tacit.field.device.history import HistoryEntry
from tacit.field.device.similar_names import normalise_text, rank_similar
from tacit.field.peer.membership import PeerMembership
from tacit.languages import LANGUAGE, translate
from tacit.types import Catalog, Label
from tacit.web.frame import page_response, redirect_back

T = TypeVar("T")
MOST_UPLOAD = 32 * 2**20  # bytes
NUMBER = re.compile(r"-?[0-9]{1,19}")  # what can be the number of an item
RANKED = 2000  # matches of a search that are put in order


class RunningParticipant(Protocol):
    """What takes part for the device while the page is open."""

    @property
    def failure(self) -> str:
        """Why it does not take part although it should, in words."""
        ...

    def stop(self) -> None:
        """End it, and let the file go."""
        ...


class SimulatedOthers(Protocol):
    """A simulated federation for a demonstration."""

    n_others: int

    def round(self) -> None:
        """Run one round."""
        ...


@dataclass(frozen=True)
class ItemView:
    """An item as the page shows it."""

    label: Label
    title: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Undo:
    """A form that undoes the user's last action."""

    action: str
    item: Label
    page: str  # the current page, to come back to


class CatalogIndex:
    """The catalogue, prepared for search."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @cached_property
    def _folded(self) -> list[str]:
        return [normalise_text(self.catalog.title(item)) for item in range(self.catalog.n_items)]

    def thing(self, label: Label) -> ItemView:
        """Return an item by its id; an item outside the catalogue has its id as title."""
        item = self.catalog.item_ids.place(label)
        if item is None:
            return ItemView(label, str(label), ())
        of = () if self.catalog.categories is None else tuple(self.catalog.categories.of(item))
        return ItemView(label, self.catalog.title(item), of)

    def normalise(self, label: Label) -> str:
        """Return a title as it is compared with the user's input."""
        item = self.catalog.item_ids.place(label)
        return normalise_text(str(label)) if item is None else self._folded[item]

    def search(self, text: str, most: int) -> tuple[list[ItemView], int]:
        """Return items whose title has all words, those that begin with the first word first, and their number."""
        words = normalise_text(text).split()
        if not words:
            return [], 0
        titles = self._folded
        found = [item for item, title in enumerate(titles) if words[0] in title]
        for word in words[1:]:
            found = [item for item in found if word in titles[item]]
        ranked = found[:RANKED]  # one short word cannot distinguish more anyway
        first = nsmallest(most, ranked, key=lambda item: (not titles[item].startswith(words[0]), titles[item]))
        return [self.thing(self.catalog.item_ids[item]) for item in first], len(found)

    def near(self, text: str, most: int) -> list[ItemView]:
        """Return items with a similar title."""
        return [self.thing(self.catalog.item_ids[item]) for item in rank_similar(text, self._folded, most)]


class DeviceView:
    """An open device, and cached values that are valid until its file changes."""

    def __init__(
        self,
        device: Device,
        curve: str = "ml-100k",
        neighbours: SimulatedOthers | None = None,
        participant: RunningParticipant | None = None,
        peer: RunningParticipant | None = None,
    ) -> None:
        self.device, self.curve, self.neighbours, self.participant = device, curve, neighbours, participant
        self.peer = peer  # what takes part among peers, without a server
        self.is_erased = False
        self._message = ""
        self._undo: Undo | None = None
        self._moment: tuple[int, int] | None = None
        self._kept: dict[tuple[str, str], Any] = {}
        self._shelf: CatalogIndex | None = None

    def cache(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` reads from the device, cached until the file changes."""
        moment = self.device.moment
        if moment != self._moment:
            self.device.reread()
            self._kept.clear()
            self._moment = moment
        key = LANGUAGE.get(), name
        if key not in self._kept:
            self._kept[key] = make()
        value: T = self._kept[key]
        return value

    @property
    def shelf(self) -> CatalogIndex | None:
        """The catalogue of the user's federation or network of peers, if there is one."""
        member = self.cache("member", lambda: self.device.membership) or self.network
        if member is None:
            return None
        if self._shelf is None or self._shelf.catalog is not member.catalog:
            self._shelf = CatalogIndex(member.catalog)
        return self._shelf

    @property
    def network(self) -> PeerMembership | None:
        """The network of peers that the user is a member of, if any."""
        return self.cache("network", lambda: PeerMembership.of(self.device.store))

    def state(self) -> DeviceState:
        """Return what the device does now."""
        self.cache("member", lambda: self.device.membership)  # another program may have joined or left
        running = self.participant if self.network is None else self.peer
        found = read_state(self.device, "" if running is None else running.failure)
        if self.neighbours is not None and found.code == DeviceStateCode.NO_SERVER:
            return replace(found, code=DeviceStateCode.TAKING_PART)  # the others are simulated in this program
        return found

    @property
    def method(self) -> str:
        """The method of the user's federation; fpl, with which the page's curve was measured, without one."""
        member = self.cache("member", lambda: self.device.membership)
        return "fpl" if member is None else member.federation.method

    @property
    def history(self) -> list[HistoryEntry]:
        """The user's history, newest first."""
        return self.cache("history", lambda: self.device.history.list()[::-1])

    def label(self, text: str) -> Label:
        """Return the id that a form field names."""
        shelf = self.shelf
        if shelf is None or shelf.catalog.item_ids.place(text) is not None or not NUMBER.fullmatch(text):
            return text
        return text if shelf.catalog.item_ids.place(int(text)) is None else int(text)

    def say(self, text: str, undo: Undo | None = None, **values: object) -> None:
        """Store a sentence for the next page that the user sees, and a form that undoes the action."""
        self._message, self._undo = translate(text, **values), undo

    def page_response(self, template: str, here: str, title: str, **values: Any) -> Response:
        """Answer with a page in the common frame of the user's pages."""
        message, undo, self._message, self._undo = self._message, self._undo, "", None
        sharing = self.cache("sharing", lambda: self.device.sharing)
        member = self.cache("member", lambda: self.device.membership)
        frame: dict[str, Any] = {"here": here, "title": title, "message": message, "undo": undo}
        frame |= {"sharing": sharing, "member": member, "network": self.network, "state": self.state()}
        frame |= {"chosen_language": self.cache("language", lambda: self.device.preferences.language)}
        return page_response(template, **frame, neighbours=self.neighbours, **values)


Handler = Callable[[Request], Any]


def form_handler(act: Callable[[dict[str, str]], str]) -> Handler:
    """Return a handler for a form: `act` does the work and returns the address of the next page."""

    async def handle(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=200) as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            fields |= {f"{name}[]": "\n".join(map(str, form.getlist(name))) for name in form}
        return redirect_back(act(fields))

    return handle


async def read_upload(request: Request, beside: str = "") -> tuple[str, str, bytes]:
    """Return the field `beside` a file, the file's name and its content; missing parts are empty."""
    async with request.form(max_files=1, max_fields=4) as form:
        text, file = form.get(beside), form.get("file")
        message = text if isinstance(text, str) else ""
        if not isinstance(file, UploadFile):
            return message, "", b""
        return message, file.filename or "", await file.read()


@dataclass(frozen=True)
class RowsPage:
    """One page of a long list."""

    rows: Sequence[Any]
    number: int
    pages: int
    total: int

    @classmethod
    def of(cls, rows: Sequence[Any], asked: str, size: int) -> RowsPage:
        """Return the requested page, or the nearest that exists."""
        pages = max(1, -(-len(rows) // size))
        number = min(max(int(asked) if asked.isdecimal() and len(asked) < 9 else 1, 1), pages)
        return cls(rows[(number - 1) * size : number * size], number, pages, len(rows))
