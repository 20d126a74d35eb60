"""The page of runs: run folders side by side, with the figures of the report; new runs appear by themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import StorageError
from tacit.lab.comparisons import compare_runs
from tacit.report.comparison import ComparisonResult
from tacit.report.figures import draw, inline_svg
from tacit.report.folder import Run
from tacit.report.page import describe_comparison
from tacit.web.disclosure import CAPTION, draw_disclosure
from tacit.web.frame import application, page_response
from tacit.web.server import Page

MOST_RUNS = 200
AT_ONCE = 0.05  # seconds that a visit waits for its figures before it shows that they are being drawn


class RunFolders:
    """Run folders, read again when they change. A folder of runs means all runs in it, later ones too."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = places
        self._read: tuple[str, list[ComparisonResult]] = ("", [])
        self._descriptions: dict[str, Future[dict[str, Any]]] = {}
        self._pencil = ThreadPoolExecutor(1, "figures")  # one: the drawing library keeps a global state

    def folders(self) -> list[Path]:
        """Return the current run folders, each once."""
        found: dict[Path, None] = {}
        for place in self.places:
            if not place.is_dir():
                raise StorageError(f"There is no folder '{place}'.", "Give folders that `tacit run` printed.")
            inside = [place] if (place / "experiment.yaml").is_file() else _compared_folders(place) or _runs_in(place)
            if not inside:
                raise StorageError(f"'{place}' holds no run.", "Give a run folder, a comparison, or a folder of runs.")
            found |= dict.fromkeys(folder.resolve() for folder in inside)
        return list(found)[:MOST_RUNS]

    def state(self) -> str:
        """Return a string that changes when a folder changes."""
        seen = [(str(folder), (folder / "result.json").stat().st_mtime_ns) for folder in self.folders()]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]

    def sets(self) -> list[ComparisonResult]:
        """Return the runs side by side, one set for each data, split and protocol."""
        state = self.state()
        if self._read[0] != state:
            self._read = (state, compare_runs([Run.open(folder) for folder in self.folders()]))
            for drawing in self._descriptions.values():
                drawing.cancel()
            self._descriptions.clear()
        return self._read[1]

    def describe(self, compared: ComparisonResult) -> Future[dict[str, Any]]:
        """Start to draw the figures of one set, which takes seconds. A failed attempt is repeated."""
        last = self._descriptions.get(key_of(compared))
        if last is None or (last.done() and last.exception() is not None):
            last = self._descriptions[key_of(compared)] = self._pencil.submit(_describe, compared)
        return last


def _runs_in(place: Path) -> list[Path]:
    return sorted(
        folder
        for folder in place.iterdir()
        if not folder.name.startswith(".")
        and (folder / "experiment.yaml").is_file()
        and (folder / "result.json").is_file()
    )


def _compared_folders(place: Path) -> list[Path]:
    """Return the run folders that a comparison made; deleted ones are left out."""
    if not (place / "comparison.yaml").is_file():
        return []
    rows = json.loads((place / "result.json").read_text(encoding="utf-8"))["rows"]
    named = [Path(run) for row in rows for run in row["runs"]]
    beside = [folder if folder.is_dir() else place.parent / folder.name for folder in named]
    return [folder for folder in beside if (folder / "experiment.yaml").is_file()]


def _describe(compared: ComparisonResult) -> dict[str, Any]:
    description = describe_comparison(compared, draw(compared))
    traded = draw_disclosure(compared)
    if traded is not None:
        title, caption = CAPTION
        svg = Markup(inline_svg("disclosed", traded, str(escape(f"{title} {caption}"))))
        description["figures"].append({"name": "disclosed", "title": title, "caption": caption, "svg": svg})
    return description


def key_of(compared: ComparisonResult) -> str:
    """Return the name of a set in addresses; it does not depend on the other sets."""
    return hashlib.sha256(compared.rows[0].conditions.encode()).hexdigest()[:8]


def lab_page(lab: RunFolders) -> Page:
    """Return the page that shows runs."""
    lab.describe(lab.sets()[0]).result()  # what is not there is said before a page opens, and the first set is drawn

    async def view(request: Request) -> Response:
        sets = lab.sets()
        compared = chosen(request, sets)
        names = [(key_of(each), each.name, len(each.rows)) for each in sets]
        frame: dict[str, Any] = {"sets": names, "place": key_of(compared), "state": lab.state()}
        drawn = asyncio.wrap_future(lab.describe(compared))
        await asyncio.wait([drawn], timeout=AT_ONCE)
        if not drawn.done():
            return page_response("drawing.html", title=compared.name, **frame)
        return page_response("lab.html", **frame, **drawn.result())

    async def state(request: Request) -> Response:
        return JSONResponse({"state": lab.state()})

    async def drawing(request: Request) -> Response:
        return JSONResponse({"state": "over" if lab.describe(chosen(request, lab.sets())).done() else "waiting"})

    def chosen(request: Request, sets: Sequence[ComparisonResult]) -> ComparisonResult:
        asked = request.query_params.get("set", "")
        return next((each for each in sets if key_of(each) == asked), sets[0])

    return Page(application([Route("/", view), Route("/state", state), Route("/drawing", drawing)]), {})
