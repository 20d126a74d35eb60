"""What there is to load, where it is, and how to get what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.data.download import DownloadProgress, cache_folder, download
from tacit.data.sources import SOURCES, DatasetLocation, find_source, locate
from tacit.errors import DownloadError


@dataclass(frozen=True)
class Status:
    """One line of the list of datasets."""

    name: str
    title: str
    state: str  # 'built in', 'here' (TACIT_DATA), 'cached', 'download' or 'ask'
    where: str  # a folder, an address, or whom to ask
    size: int | None  # bytes on disk, or to be fetched; None where unknown
    licence: str
    home: str
    citation: str


def datasets() -> list[Status]:
    """Return every dataset that can be named, with where it is or how to get it."""
    town = "Generated users and places, with tastes, times, coordinates and a knowledge graph"
    found = [Status("town", town, "built in", "generated", 0, "Part of Tacit (Apache-2.0).", "", "")]
    for source in SOURCES.values():
        place = locate(source)
        if place is not None:
            state, where = ("cached" if place.cached else "here"), str(place.folder)
            size: int | None = sum(file.stat().st_size for file in place.folder.rglob("*") if file.is_file())
        elif source.files:
            state, where = "download", source.files[0].url
            size = sum(remote.size or 0 for remote in source.files) or None
        else:
            state, where, size = "ask", source.ask, None
        found.append(
            Status(source.name, source.title, state, where, size, source.licence, source.home, source.citation)
        )
    return found


def fetch(name: str, progress: DownloadProgress | None = None) -> DatasetLocation:
    """Make sure that a named dataset is here: look it up, or download its official files into the cache."""
    source = find_source(name)
    place = locate(source)
    if place is not None:
        return place
    folder = cache_folder() / (source.folder or source.name)
    if not source.files:
        raise DownloadError(
            f"'{name}' cannot be downloaded by a program. {source.ask}",
            f"Put the files into {folder}, or into {source.name}/ of the folder that TACIT_DATA names.",
        )
    for number, remote in enumerate(source.files):
        download(remote, folder, _sum_progress(progress, number, [file.size for file in source.files]))
    found = locate(source)
    if found is None:
        raise DownloadError(
            f"The download of '{name}' does not contain {' or '.join(source.signs)}.", f"See {source.home}."
        )
    return found


def _sum_progress(progress: DownloadProgress | None, number: int, sizes: list[int | None]) -> DownloadProgress | None:
    """Count the bytes of several files as one."""
    if progress is None or len(sizes) == 1:
        return progress
    report: Callable[[int, int | None], None] = progress
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return progress
    before = sum(known[:number])
    return lambda done, _: report(before + done, sum(known))
