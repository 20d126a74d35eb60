"""`tacit serve`: a federation's coordinator from one YAML file."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from pydantic import Field

from tacit.data import SOURCES, DataConfig, load
from tacit.errors import ConfigError, DataError, FieldError
from tacit.field.certificates import Certificates, load_certificates, make_certificates
from tacit.field.coordinator import Carrier, Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator.coordinator import refuse_readable_only
from tacit.field.coordinator.journal import RoundRecord
from tacit.field.coordinator.round_policy import count_needed, is_settled
from tacit.field.coordinator.trial import try_round
from tacit.field.invitations import Invitation
from tacit.methods.choice import MethodChoice
from tacit.privacy.clipping import ClippingConfig
from tacit.types import Catalog, Config, Labels, Vocabulary, offsets
from tacit.updates import Ring
from tacit.wire.federation import Federation

if TYPE_CHECKING:
    from tacit.field.metrics import MetricsServer


class ServeConfig(Config):
    """A federation and where its coordinator listens."""

    name: str = Field("federation", min_length=1, max_length=80, description="name of the federation")
    folder: Path = Field(
        Path("coordinator"), description="folder for the journal and, if none are given, the certificates"
    )
    catalog: str = Field("town", description="a dataset by name, or a table with columns item[, title, category]")
    graph: bool | str = Field(False, description="for methods that need features: the dataset's graph, or a file")
    hops: int = Field(0, ge=0, le=4, description="hops that the graph is explored from each item")
    method: MethodChoice
    ring: Ring = Ring()
    clip: ClippingConfig | None = Field(None, description="bounds on the norm of messages")
    rounds: RoundRules = RoundRules()
    listen: str = Field("127.0.0.1:8443", description="host:port to listen on")
    address: str | None = Field(None, description="host:port that invitations name, if it differs from listen")
    certificate: Path | None = Field(None, description="PEM file; without one, the coordinator makes its own")
    key: Path | None = Field(None, description="PEM file of the certificate's key")
    roots: Path | None = Field(None, description="PEM file that devices must trust, if their machines do not")
    metrics: str | None = Field(None, description="host:port for Prometheus; keep it inside your own network")

    @property
    def public(self) -> str:
        """Where devices find it."""
        return self.address or self.listen


def open_federation(config: ServeConfig, seed: int | None = None) -> CoordinatorJournal:
    """Found the federation, or go on with it; its terms cannot change once it is founded.

    A `seed` is for comparisons with a simulation; without one the coordinator draws its own.
    """
    path = config.folder / "journal.db"
    catalog = _catalog(config)
    given = config.method.options.model_dump(mode="json", exclude_unset=True)
    if not path.exists():
        federation = Federation.create(
            secrets.token_hex(16), config.name, config.method.name, given, catalog, ring=config.ring, clip=config.clip
        )
        refuse_readable_only(federation.built.spec, config.rounds)
        try_round(federation, catalog)  # refused here and not in the first round
        return CoordinatorJournal.create(path, federation, catalog, seed=seed)
    journal = CoordinatorJournal.open(path)
    agreed = journal.federation
    wanted = Federation.create(
        agreed.id, config.name, config.method.name, given, catalog, ring=config.ring, clip=config.clip
    )
    if differs := wanted.list_differences(agreed):
        raise ConfigError(
            f"The federation in '{path}' was founded with other values of {', '.join(differs)}.",
            "Its members agreed to those. Restore them, or choose another folder for a new federation.",
        )
    return journal


def find_certificates(config: ServeConfig) -> Certificates:
    """Return the operator's certificate, or one of the coordinator's own."""
    if config.certificate is not None and config.key is not None:
        return load_certificates(config.certificate, config.key, config.roots)
    if config.certificate is not None or config.key is not None:
        raise ConfigError("Only one of certificate and key is given.", "Give both, or neither.")
    return make_certificates(config.folder / "tls", host_port(config.public)[0])


def make_invitation(config: ServeConfig, journal: CoordinatorJournal, days: float) -> str:
    """Make one line that enrols one device."""
    word = journal.invite(int(time.time() + days * 86_400))
    return Invitation(config.public, word, find_certificates(config).roots).line()


def serve(
    config: ServeConfig,
    on_round: Callable[[RoundRecord], None] = lambda happened: None,
    beside: Callable[[Path, Carrier], AbstractContextManager[object]] = lambda journal, carrier: nullcontext(),
    on_start: Callable[[int, int], None] = lambda devices, done: None,
) -> None:
    """Run the rounds that are left, and give out the model.

    `beside` is open meanwhile; `on_start` hears how many devices are waited for and how many rounds are done,
    as soon as they can come.
    """
    from tacit.field.carriers.superlink import SuperLink

    journal, tls = open_federation(config), find_certificates(config)
    link = SuperLink(journal, *host_port(config.listen), tls.certificate, tls.key)
    metrics = None
    try:
        if config.metrics is not None:
            metrics = _metrics_server()(journal.path, link, *host_port(config.metrics))
        on_start(count_needed(config.rounds, is_settled(config.rounds, journal)), journal.next_round)
        with beside(journal.path, link):
            Coordinator(journal, config.rounds, link).run(on_round)
    finally:
        if metrics is not None:
            metrics.close()
        link.close()
        journal.close()


def _metrics_server() -> type[MetricsServer]:
    """Load the library that writes metrics; only a coordinator that offers them needs it."""
    try:
        from tacit.field.metrics import MetricsServer
    except ModuleNotFoundError as error:
        raise FieldError(
            f"The metrics need the package '{error.name}', which is not installed.",
            "In the folder of Tacit's source, run: pip install -e '.[field]'. Or leave the option 'metrics' out.",
        ) from None
    return MetricsServer


def host_port(text: str) -> tuple[str, int]:
    """Take 'host:port' apart."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"'{text}' is not host:port.", "Write 127.0.0.1:8443.")
    return host.strip("[]"), int(port)


def _catalog(config: ServeConfig) -> Catalog:
    """Read the public knowledge about items; what people did in a named dataset is not looked at."""
    source = config.catalog
    if source in SOURCES or not Path(source).suffix:
        return load(DataConfig(source=source, graph=config.graph, hops=config.hops)).catalog
    if config.graph or config.hops:
        raise ConfigError("graph and hops belong to a dataset by name.", "Give categories in the table instead.")
    path = Path(source)
    try:
        frame = pl.read_csv(path, separator="\t" if path.suffix == ".tsv" else ",", infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"The catalogue '{path}' cannot be read: {str(error).splitlines()[0]}.") from None
    if "item" not in frame.columns:
        raise DataError(f"The catalogue '{path}' has no column 'item'.", f"Its columns: {', '.join(frame.columns)}.")
    items = frame["item"].to_list()
    if len(set(items)) < len(items) or any(item is None for item in items):
        raise DataError(
            f"The catalogue '{path}' has an item twice, or a row without an item.", "Give each item one row."
        )
    titles = [str(title or "") for title in frame["title"].to_list()] if "title" in frame.columns else None
    return Catalog(Vocabulary(pl.Series(items).to_numpy().astype(object)), titles, _categories(frame))


def _categories(frame: pl.DataFrame) -> Labels | None:
    if "category" not in frame.columns:
        return None
    lists = [[name for name in (text or "").split("|") if name] for text in frame["category"].to_list()]
    names = sorted({name for row in lists for name in row})
    index = {name: at for at, name in enumerate(names)}
    ids = pl.Series([index[name] for row in lists for name in row], dtype=pl.Int32).to_numpy()
    return Labels(offsets(pl.Series([len(row) for row in lists]).to_numpy()), ids, names)


class JsonLines(logging.Formatter):
    """One JSON object per line: when, what, and counts."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "from": record.name, "event": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", {}))


def log_to_stderr() -> None:
    """Send our log, and ours only, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("tacit")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
