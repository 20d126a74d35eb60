"""load: a name, a path or a frame becomes a filtered Dataset. The one way data comes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from tacit.data.clock import DateOrder
from tacit.data.dataset import Dataset, Tables, assemble
from tacit.data.download import DownloadProgress
from tacit.data.exploration import NOISE, explore
from tacit.data.fetch import fetch
from tacit.data.files import from_frame, is_frame, read_file
from tacit.data.filters import FilterConfig, apply_filters
from tacit.data.folder import GraphRequest, read_folder, read_graph, read_layout
from tacit.data.formats.images import Digits, Faces, celeba, mnist
from tacit.data.sources import SOURCES, DatasetLocation, Source, find_source, locate, unknown_dataset
from tacit.data.town import town
from tacit.data.vectors import MOST_WIDTH, attach_vectors
from tacit.errors import DataError, nearest

_TOWN_ONLY = ("users", "places", "visits", "seed")
_PEPPER = {"foursquare-nyc": {"user": "1", "item": "2", "rating": "3", "lat": "5", "lon": "6"}}


class DataConfig(FilterConfig):
    """Which data, and what of it."""

    former_names: ClassVar[Mapping[str, str]] = {"data.people": "data.users"}
    source: str = Field("town", description="name of a dataset, or path of your own file or folder")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="for your own files: role -> name or number of its column, where the name is not recognised",
    )
    dates: DateOrder = Field(
        "auto",
        description="for your own files: what comes first in dates such as 03/04/2024, where the file does not tell",
    )
    strip_ids: bool = Field(
        False,
        description="for your own files: remove spaces around ids of users and items, which else are part of them",
    )
    table: str | None = Field(
        None, description="which log of interactions, for datasets with several (lastfm-2k: tags or listens)"
    )
    graph: bool | str = Field(
        False,
        description="load the knowledge graph of the items too: the dataset's own (true), or a file of triples (.nt, "
        ".tsv) or of ready item features",
    )
    links: str | None = Field(None, description="table (item, entity) that links items to your own graph")
    hops: int = Field(
        0, ge=0, le=4, description="hops that the graph is explored from each item; 0: use its statements as they are"
    )
    min_per_feature: int = Field(0, ge=0, description="least number of items that an explored feature must describe")
    skip_predicates: tuple[str, ...] = Field(
        NOISE, description="predicates with which an explored path must not begin, in full or with the usual prefix"
    )
    only_predicates: tuple[str, ...] = Field(
        (), description="predicates with one of which an explored path must begin; empty: any"
    )
    vectors: bool | str = Field(
        False,
        description="public vectors of items, for items in no history: a file that any encoder made, or made here "
        "from categories, titles and graph (true)",
    )
    vectors_width: int = Field(128, ge=1, le=MOST_WIDTH, description="numbers of a vector that is made here")
    vectors_digest: str | None = Field(
        None, pattern="^[0-9a-fA-F]{64}$", description="SHA-256 that the file of vectors must have"
    )
    users: int = Field(1000, ge=2, description="town: number of users")
    places: int = Field(800, ge=2, description="town: number of items (places)")
    visits: int = Field(60, ge=2, description="town: mean number of visits of a user in a year")
    seed: int = Field(0, ge=0, description="town: seed of the generator")

    @model_validator(mode="before")
    @classmethod
    def _numbers_name_columns(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("columns"), dict):
            return {**given, "columns": {role: str(name) for role, name in given["columns"].items()}}
        return given

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        is_named = self.source in SOURCES
        if self.source != "town":
            for option in _TOWN_ONLY:
                if getattr(self, option) != type(self).model_fields[option].default:
                    raise ValueError(f"'{option}' belongs to source 'town', not to '{self.source}'")
        if self.columns and (is_named or self.source == "town"):
            raise ValueError(f"'columns' is for your own files; the columns of '{self.source}' are known")
        if self.dates != "auto" and (is_named or self.source == "town"):
            raise ValueError(f"'dates' is for your own files; the dates of '{self.source}' are known")
        if self.strip_ids and (is_named or self.source == "town"):
            raise ValueError(f"'strip_ids' is for your own files; the ids of '{self.source}' are known")
        if self.links is not None and not isinstance(self.graph, str):
            raise ValueError("'links' belongs to your own graph; name its file as 'graph'")
        if self.hops == 0 or self.graph is False:
            for option in ("min_per_feature", "skip_predicates", "only_predicates", "hops"):
                if getattr(self, option) != type(self).model_fields[option].default:
                    raise ValueError(f"'{option}' has no effect unless a graph is explored; set 'graph' and 'hops'")
        if self.vectors is not True and self.vectors_width != type(self).model_fields["vectors_width"].default:
            raise ValueError("'vectors_width' is of vectors that are made here; set 'vectors' to true")
        if self.vectors_digest is not None and not isinstance(self.vectors, str):
            raise ValueError("'vectors_digest' belongs to a file of vectors; name it as 'vectors'")
        if isinstance(self.graph, str) and self.source == "town":
            raise ValueError("town has a graph of its own; set 'graph' to true")
        if self.table is not None:
            tables = SOURCES[self.source].tables if is_named else ()
            if self.table not in tables:
                known = ", ".join(tables) or "it has only one"
                raise ValueError(f"'{self.source}' has no table '{self.table}' ({known})")
        return self


def load(source: Any = "town", progress: DownloadProgress | None = None, **options: Any) -> Dataset:
    """Return a dataset by name, path, pandas or polars frame, or DataConfig, with its filters applied.

    A named dataset is looked up under TACIT_DATA, then in the cache, then fetched from its official home.
    """
    if isinstance(source, DataConfig):
        config = DataConfig.from_options({**source.model_dump(), **options}, "data") if options else source
        return _load_configured(config, progress)
    if is_frame(source):
        config = DataConfig.from_options({"source": "frame", **options}, "data")
        tables = _settle(from_frame(source, config.columns), config)
        return _add_vectors(apply_filters(assemble("frame", tables, "the frame"), config), config)
    if not isinstance(source, str | Path):
        raise DataError(
            f"Cannot load data from {type(source).__name__}.", "Give a name, a path, or a pandas or polars frame."
        )
    return _load_configured(DataConfig.from_options({"source": str(source), **options}, "data"), progress)


def _load_configured(config: DataConfig, progress: DownloadProgress | None) -> Dataset:
    dataset = _add_vectors(apply_filters(read_dataset(config, progress), config), config)
    return replace(dataset, loaded=(config, dataset.interactions))


def _add_vectors(dataset: Dataset, config: DataConfig) -> Dataset:
    """Return a dataset with vectors of the items that filters left."""
    if config.vectors is False:
        return dataset
    catalog = attach_vectors(dataset.catalog, config.vectors, config.vectors_width, config.vectors_digest)
    return replace(dataset, catalog=catalog)


def read_dataset(config: DataConfig, progress: DownloadProgress | None = None) -> Dataset:
    """Return the whole dataset of a configuration, before the filters of its log."""
    dataset = _read(config, progress)
    graph = dataset.catalog.graph
    if graph is None or config.hops == 0:
        return dataset
    skip, only = config.skip_predicates, config.only_predicates
    explored = explore(graph, config.hops, min_items=config.min_per_feature, skip=skip, only=only)
    return replace(dataset, catalog=replace(dataset.catalog, graph=explored))


def _graph_request(config: DataConfig) -> GraphRequest | None:
    if config.graph is False:
        return None
    file = Path(config.graph).expanduser() if isinstance(config.graph, str) else None
    links = Path(config.links).expanduser() if config.links is not None else None
    if links is not None and not links.is_file():
        raise DataError(f"data.links: there is no file {links}.", "Give a table with the columns item and entity.")
    return GraphRequest(file, links, config.hops, config.skip_predicates)


def _read(config: DataConfig, progress: DownloadProgress | None) -> Dataset:
    wish = _graph_request(config)
    if config.source == "town":
        return town(config.users, config.places, config.visits, config.seed, bool(config.graph))
    if config.source in SOURCES:
        return _read_named(find_source(config.source), config, progress)
    path = Path(config.source).expanduser()
    if path.is_dir():
        tables, where = read_folder(path, config.columns, wish)
    elif path.is_file():
        if config.graph is True:
            raise DataError(
                f"data.graph is set, but {path} is a single file.",
                "Give a folder with interactions.tsv, kg.tsv and item_entity.tsv, or name the file of the graph.",
            )
        tables, where = read_file(path, config.columns)
        if wish is not None:
            tables = replace(tables, graph=read_graph(None, wish))
    elif path.suffix or len(path.parts) > 1:
        raise DataError(f"There is no file or folder {path}.", "Relative paths start in the current folder.")
    else:
        raise unknown_dataset(config.source)
    return assemble(path.name, _settle(tables, config), str(path), where)


def _settle(tables: Tables, config: DataConfig) -> Tables:
    """Return the tables of one's own file, read as the options say."""
    settled = replace(tables, dates=config.dates)
    return settled.strip_ids() if config.strip_ids else settled


def _read_named(source: Source, config: DataConfig, progress: DownloadProgress | None) -> Dataset:
    if source.name in _IMAGES:
        raise DataError(
            f"'{source.name}' holds pictures, not interactions of users with items.",
            f"Use tacit.data.load_images('{source.name}').",
        )
    place = locate(source) or fetch(source.name, progress)
    table = config.table or (source.tables[0] if source.tables else "")
    where = None
    if source.name == "pepper-splits":
        tables, where = read_folder(place.folder / table, _PEPPER.get(table, {}), _graph_request(config))
    elif place.form == "tables":
        log = "listens" if table == "listens" else "interactions"
        tables, where = read_layout(place.folder, log, {}, _graph_request(config))
    elif source.parse is not None:
        tables = source.parse(place.folder, table)
        wish = _graph_request(config)
        if wish is not None:
            tables = replace(tables, graph=read_graph(place.folder, wish))
    else:
        raise DataError(f"'{source.name}' is not in the form that is known: interactions.tsv.", source.ask)
    tables = replace(tables, before_1970=source.before_1970)
    name = f"{source.name}:{table}" if config.table else source.name
    return assemble(name, tables, str(place.folder), where)


_IMAGES: dict[str, Callable[[Path], Digits | Faces]] = {"mnist": mnist, "celeba-attributes": celeba}


def load_images(name: str, progress: DownloadProgress | None = None) -> Digits | Faces:
    """Return MNIST's digits or CelebA's attributes."""
    if name not in _IMAGES:
        raise DataError(f"There are no pictures named '{name}'.", nearest(name, _IMAGES))
    place: DatasetLocation = locate(find_source(name)) or fetch(name, progress)
    return _IMAGES[name](place.folder)
