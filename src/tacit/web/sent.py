"""The page of messages: the next one, all that were sent, and what a curious server could infer from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.field.device.exposure import ExposureReport, LedgerReader
from tacit.field.device.ledger import MAY_HAVE_LEFT, LedgerEntry, UpcomingMessage
from tacit.types import Label
from tacit.web.budget import view_budget
from tacit.web.device_view import CatalogIndex, DeviceView, RowsPage

PAGE = 20
STATES = {
    "prepared": ("waiting", "It is ready, and nothing of it was sent.", ""),
    "releasing": ("on its way", "It was given to the network and may have arrived.", "warn"),
    "sent": ("sent", "It arrived.", "good"),
    "may have left": ("may have left", "The transfer broke off. The receiver may have all of it.", "warn"),
    "not sent": ("not sent", "The connection ended before anything of it was handed over.", ""),
}
LITTLE, MUCH = 0.05, 0.5  # of the leak index


@dataclass(frozen=True)
class ItemMentions:
    """An item that a message mentions, and the number of its notes."""

    title: str
    times: int


@dataclass(frozen=True)
class ReleaseView:
    """A message as the page shows it."""

    release: LedgerEntry
    mine: list[ItemMentions]
    others: list[ItemMentions]
    state: tuple[str, str, str]


@dataclass(frozen=True)
class ReleaseSums:
    """Sums over all messages that may have been sent."""

    messages: int
    mine: int
    others: int
    bytes: int

    @classmethod
    def of(cls, releases: Iterable[LedgerEntry]) -> ReleaseSums:
        """Add them up."""
        left = [release for release in releases if release.state in MAY_HAVE_LEFT]
        return cls(
            len(left),
            sum(len(release.positives) + release.derived for release in left),
            sum(len(release.negatives) + release.others for release in left),
            sum(release.bytes for release in left),
        )


def measure_next_release(view: DeviceView) -> tuple[UpcomingMessage | None, dict[str, ExposureReport]]:
    """Return the next message, and what a reader can infer now and after it."""
    if view.device.membership is None:  # of models to peers, the page of peers says what can be inferred
        return None, {}
    upcoming = view.device.upcoming()
    if not len(view.device.history):
        return upcoming, {}
    reader = LedgerReader.of(view.device)
    found = {"now": reader.measure()}
    return upcoming, found if upcoming is None else {**found, "next": reader.measure(upcoming)}


def routes(view: DeviceView) -> list[Route]:
    """Return the page of messages."""

    async def page(request: Request) -> Response:
        shelf = view.shelf
        releases = view.cache("ledger", lambda: view.device.ledger.list()[::-1])
        leaf = RowsPage.of(releases, request.query_params.get("page", "1"), PAGE)
        upcoming, measures = view.cache("measured", lambda: measure_next_release(view))
        return view.page_response(
            "sent.html",
            "sent",
            "Sent",
            sums=ReleaseSums.of(releases),
            leaf=leaf,
            told=[_view_release(release, shelf) for release in leaf.rows],
            upcoming=upcoming,
            mine=_notes(upcoming.rows.positives, shelf) if upcoming is not None else [],
            others=_notes(upcoming.rows.negatives, shelf) if upcoming is not None else [],
            now=measures.get("now"),
            after=measures.get("next"),
            named=[shelf.thing(item).title for item in measures["now"].named] if shelf is not None and measures else [],
            sum_exposure=view.cache("sum exposure", lambda: view.device.sum_exposure),
            budget=view.cache("budget", lambda: view_budget(view.device)),
            verdict=describe_leak(measures["now"].exposure.leak_index) if measures else ("", ""),
        )

    return [Route("/sent", page)]


def describe_leak(leak: float) -> tuple[str, str]:
    """Return how well a reader does, in words, and a class of severity."""
    if leak < LITTLE:
        return "about as well as guessing the popular ones", "is-low"
    if leak < MUCH:
        return "clearly better than guessing the popular ones", "is-middle"
    return "far better than guessing the popular ones", "is-high"


def _view_release(release: LedgerEntry, shelf: CatalogIndex | None) -> ReleaseView:
    return ReleaseView(
        release, _notes(release.positives, shelf), _notes(release.negatives, shelf), STATES[release.state]
    )


def _notes(labels: Iterable[Label], shelf: CatalogIndex | None) -> list[ItemMentions]:
    times = Counter(labels)
    found = [ItemMentions(str(label) if shelf is None else shelf.thing(label).title, n) for label, n in times.items()]
    return sorted(found, key=lambda note: (-note.times, note.title))
