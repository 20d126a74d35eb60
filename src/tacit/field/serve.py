"""`tacit serve`: a federation's coordinator from one YAML file."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
from pydantic import Field

from tacit.config import MethodChoice
from tacit.coordinator import Carrier, Coordinator, Journal, RoundRules
from tacit.coordinator.journal import Round
from tacit.coordinator.round_policy import is_settled, needed
from tacit.data import SOURCES, DataConfig, load
from tacit.errors import ConfigError, DataError, FieldError
from tacit.field.certificates import Certificates, given_certificates, own_certificates
from tacit.field.invitations import Invitation
from tacit.privacy.clipping import ClippingConfig
from tacit.random import Key
from tacit.runtimes.federation import Federation
from tacit.types import Catalog, Config, Labels, Vocabulary, offsets
from tacit.updates import Ring

ROUND_STATES = ("finished", "abandoned", "skipped")


class ServeConfig(Config):
    """A federation and where its coordinator listens."""

    name: str = Field("federation", min_length=1, max_length=80, description="what people call it")
    folder: Path = Field(Path("coordinator"), description="receives the journal and, if none are given, certificates")
    catalog: str = Field("town", description="a dataset by name, or a table with columns item[, title, category]")
    method: MethodChoice
    ring: Ring = Ring()
    clip: ClippingConfig | None = Field(None, description="how long what leaves may be")
    rounds: RoundRules = RoundRules()
    listen: str = Field("127.0.0.1:8443", description="host:port")
    address: str | None = Field(None, description="host:port for invitations, where it is not the one listened on")
    certificate: Path | None = Field(None, description="PEM file; without one, the coordinator makes its own")
    key: Path | None = Field(None, description="PEM file of the certificate's key")
    roots: Path | None = Field(None, description="PEM file that devices must trust, if their machines do not")
    metrics: str | None = Field(None, description="host:port for Prometheus; keep it inside")

    @property
    def public(self) -> str:
        """Where devices find it."""
        return self.address or self.listen


def opened(config: ServeConfig) -> Journal:
    """Found the federation, or go on with it; its terms cannot change once it is founded."""
    path = config.folder / "journal.db"
    catalog = _catalog(config.catalog)
    given = config.method.options.model_dump(mode="json")
    if not path.exists():
        federation = Federation.found(
            secrets.token_hex(16), config.name, config.method.name, given, catalog, ring=config.ring, clip=config.clip
        )
        federation.first_model(catalog, Key(0))  # refused here and not in the first round
        return Journal.create(path, federation, catalog)
    journal = Journal.open(path)
    agreed = journal.federation
    wanted = Federation.found(
        agreed.id, config.name, config.method.name, given, catalog, ring=config.ring, clip=config.clip
    )
    if wanted != agreed:
        differs = [name for name in Federation.model_fields if getattr(wanted, name) != getattr(agreed, name)]
        raise ConfigError(
            f"The federation in '{path}' was founded on other terms: {', '.join(differs)}.",
            "Its members agreed to those. Choose another folder for a new federation.",
        )
    return journal


def certificates(config: ServeConfig) -> Certificates:
    """Return the operator's certificate, or one of the coordinator's own."""
    if config.certificate is not None and config.key is not None:
        return given_certificates(config.certificate, config.key, config.roots)
    if config.certificate is not None or config.key is not None:
        raise ConfigError("Of certificate and key only one is given.", "Give both, or none of them.")
    return own_certificates(config.folder / "tls", host_port(config.public)[0])


def invitation(config: ServeConfig, journal: Journal, days: float) -> str:
    """Make one line that enrols one device."""
    word = journal.invite(int(time.time() + days * 86_400))
    return Invitation(config.public, word, certificates(config).roots).line()


def serve(
    config: ServeConfig,
    on_round: Callable[[Round], None] = lambda happened: None,
    beside: Callable[[Path, Carrier], AbstractContextManager[object]] = lambda journal, carrier: nullcontext(),
    on_start: Callable[[int, int], None] = lambda devices, done: None,
) -> None:
    """Run the rounds that are left, and give out the model.

    `beside` is open meanwhile; `on_start` hears how many devices are waited for and how many rounds are done,
    as soon as they can come.
    """
    from tacit.field.superlink import SuperLink

    journal, tls = opened(config), certificates(config)
    link = SuperLink(journal, *host_port(config.listen), tls.certificate, tls.key)
    meter = None
    try:
        meter = None if config.metrics is None else Meter(journal.path, link, *host_port(config.metrics))
        on_start(needed(config.rounds, is_settled(config.rounds, journal)), journal.next_round)
        with beside(journal.path, link):
            Coordinator(journal, config.rounds, link).run(on_round)
    finally:
        if meter is not None:
            meter.close()
        link.close()
        journal.close()


def host_port(text: str) -> tuple[str, int]:
    """Take 'host:port' apart."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"'{text}' is not host:port.", "Write 127.0.0.1:8443.")
    return host.strip("[]"), int(port)


def _catalog(source: str) -> Catalog:
    """Read the public knowledge about items; what people did in a named dataset is not looked at."""
    if source in SOURCES or not Path(source).suffix:
        whole = load(DataConfig(source=source)).catalog
        return Catalog(whole.item_ids, whole.titles, whole.categories)
    path = Path(source)
    try:
        frame = pl.read_csv(path, separator="\t" if path.suffix == ".tsv" else ",", infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"The catalogue '{path}' cannot be read: {str(error).splitlines()[0]}.") from None
    if "item" not in frame.columns:
        raise DataError(f"The catalogue '{path}' has no column 'item'.", f"Seen: {', '.join(frame.columns)}.")
    items = frame["item"].to_list()
    if len(set(items)) < len(items) or any(item is None for item in items):
        raise DataError(f"The catalogue '{path}' names an item twice, or not at all.")
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


class Meter:
    """Numbers for Prometheus, from the journal: they survive a restart, and are about rounds, never about people."""

    def __init__(self, path: Path, carrier: Carrier, host: str, port: int) -> None:
        def page() -> bytes:
            return exposition(path, len(carrier.present())).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(page() if found else b"")

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise FieldError(
                f"Cannot listen on {host}:{port} for metrics: {error.strerror}.", "Choose another."
            ) from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def exposition(path: Path, present: int) -> str:
    """Write a journal's numbers as Prometheus reads them."""
    journal = Journal.open(path)
    try:
        rounds, devices = journal.rounds(), journal.devices()
        phases, quality = journal.phase_sums(), journal.quality()
    finally:
        journal.close()
    lines = []

    def add(name: str, kind: str, values: dict[str, float]) -> None:
        lines.append(f"# TYPE tacit_{name} {kind}")
        lines.extend(f"tacit_{name}{labels} {value:.12g}" for labels, value in values.items())

    states = {f'{{state="{state}"}}': sum(r.state == state for r in rounds) for state in ROUND_STATES}
    add("rounds_total", "counter", dict(states))
    add("masked_rounds_total", "counter", {"": sum(r.masked for r in rounds)})
    reasons = Counter((r.state, str(r.reason.code)) for r in rounds if r.reason is not None)
    coded = {f'{{state="{state}",code="{code}"}}': float(n) for (state, code), n in sorted(reasons.items())}
    add("round_reasons_total", "counter", coded)
    for count in ("asked", "answered", "refused", "lost", "called_off"):
        add(f"{count}_total", "counter", {"": sum(getattr(r, count) for r in rounds)})
    sizes = {
        '{direction="up"}': sum(r.bytes_up for r in rounds),
        '{direction="down"}': sum(r.bytes_down for r in rounds),
    }
    add("bytes_total", "counter", dict(sizes))
    add("round_seconds_sum", "counter", {"": sum(r.seconds for r in rounds)})
    add("last_round_seconds", "gauge", {"": rounds[-1].seconds if rounds else 0.0})
    labels = [f'{{stage="{phase.stage}",phase="{phase.name}"}}' for phase in phases]
    for measure in ("asked", "answered", "refused", "lost", "called_off", "bytes_up", "bytes_down", "seconds"):
        sums = [getattr(phase, measure) for phase in phases]
        add(f"phase_{measure}_total", "counter", dict(zip(labels, sums, strict=True)))
    add("quality_hits_total", "counter", {"": quality.hits})
    add("quality_people_total", "counter", {"": quality.people})
    revoked = sum(device.revoked for device in devices)
    known = {'{state="enrolled"}': len(devices) - revoked, '{state="revoked"}': revoked, '{state="present"}': present}
    add("devices", "gauge", dict(known))
    return "\n".join(lines) + "\n"


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
