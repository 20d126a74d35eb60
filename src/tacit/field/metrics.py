"""A coordinator's numbers for Prometheus, read from the journal and never about users; and whether it is healthy."""

from __future__ import annotations

import hmac
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from tacit.errors import ConfigError, FieldError, TacitError
from tacit.field.coordinator import Carrier, CoordinatorJournal
from tacit.field.coordinator.round_log import ROLLED_BACK
from tacit.field.coordinator.spending import LACK_OF_NOISE, find_epsilon
from tacit.wire.status import CoordinatorStatus

ROUND_STATES = ("finished", "abandoned", "skipped", ROLLED_BACK)
LEAST_TOKEN = 16  # characters
MEASURES = {
    "asked": "Devices that were asked",
    "answered": "Answers that came in time",
    "refused": "Answers that were refused",
    "lost": "Devices that did not answer in time",
    "called_off": "Devices that were not waited for",
}
PHASE_MEASURES = MEASURES | {
    "bytes_up": "Bytes from devices",
    "bytes_down": "Bytes to devices",
    "seconds": "Seconds that phases took",
}


class RoundCollector(Collector):
    """Reads the journal anew whenever the numbers are asked for."""

    def __init__(self, path: Path, carrier: Carrier) -> None:
        self._path, self._carrier = path, carrier

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        journal = CoordinatorJournal.open(self._path)
        try:
            rounds, devices = journal.rounds.records(), journal.members.devices()
            phases, quality = journal.rounds.phase_sums(), journal.rounds.quality()
            sums, agreed, unagreed = journal.sums.spendings(), journal.federation.privacy, len(journal.members.unagreed)
        finally:
            journal.close()
        states = {state: sum(r.state == state for r in rounds) for state in ROUND_STATES}
        yield _add_labels(CounterMetricFamily("tacit_rounds", "Rounds by how they ended", labels=["state"]), states)
        reasons = Counter((r.state, str(r.reason.code)) for r in rounds if r.reason is not None)
        coded = CounterMetricFamily("tacit_round_reasons", "Rounds by state and reason", labels=["state", "code"])
        for (state, code), n in sorted(reasons.items()):
            coded.add_metric([state, code], n)
        yield coded
        masked = sum(r.masked for r in rounds)
        yield CounterMetricFamily("tacit_masked_rounds", "Rounds under masks", value=masked)
        readable = sum(r.asked > 0 and not r.masked for r in rounds)
        yield CounterMetricFamily("tacit_readable_rounds", "Rounds in which each answer could be read", value=readable)
        for name, help_text in MEASURES.items():
            yield CounterMetricFamily(f"tacit_{name}", help_text, value=sum(getattr(r, name) for r in rounds))
        sizes = {"up": sum(r.bytes_up for r in rounds), "down": sum(r.bytes_down for r in rounds)}
        yield _add_labels(CounterMetricFamily("tacit_bytes", "Bytes from and to devices", labels=["direction"]), sizes)
        seconds = sum(r.seconds for r in rounds)
        yield SummaryMetricFamily("tacit_round_seconds", "Seconds that rounds took", len(rounds), seconds)
        last = rounds[-1].seconds if rounds else 0.0
        yield GaugeMetricFamily("tacit_last_round_seconds", "Seconds that the last round took", value=last)
        for name, help_text in PHASE_MEASURES.items():
            counter = CounterMetricFamily(f"tacit_phase_{name}", f"{help_text}, by phase", labels=["stage", "phase"])
            for phase in phases:
                counter.add_metric([str(phase.stage), phase.name], getattr(phase, name))
            yield counter
        yield CounterMetricFamily("tacit_quality_hits", "Users whose newest item was in their list", quality.hits)
        yield CounterMetricFamily("tacit_quality_users", "Users for whom that was measured", quality.people)
        former = "Former name of tacit_quality_users, until 0.3"
        yield CounterMetricFamily("tacit_quality_people", former, quality.people)
        if agreed is not None:
            yield GaugeMetricFamily("tacit_epsilon", "Epsilon of all sums so far", find_epsilon(sums, agreed.delta))
            yield GaugeMetricFamily("tacit_epsilon_agreed", "Epsilon that members agreed on", agreed.epsilon)
            spent = sum(one.share for one in sums)
            yield GaugeMetricFamily("tacit_budget_spent", "Share of the privacy budget of a device in every sum", spent)
            noiseless = sum(r.reason is not None and r.reason.code == LACK_OF_NOISE for r in rounds)
            yield CounterMetricFamily("tacit_rounds_without_noise", "Rounds abandoned for lack of noise", noiseless)
        revoked, present = sum(device.revoked for device in devices), len(self._carrier.present())
        known = {"enrolled": len(devices) - revoked, "revoked": revoked, "present": present, "unagreed": unagreed}
        yield _add_labels(GaugeMetricFamily("tacit_devices", "Devices by state", labels=["state"]), known)


def _add_labels(
    metric: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]
) -> CounterMetricFamily | GaugeMetricFamily:
    for label, value in values.items():
        metric.add_metric([label], value)
    return metric


def registry_of(path: Path, carrier: Carrier) -> CollectorRegistry:
    """Return a registry that holds a journal's numbers and nothing of the process or the machine."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(RoundCollector(path, carrier))
    return registry


class QuietHandler(WSGIRequestHandler):
    """Writes no line for each request, since our log has what happens; closes idle connections."""

    timeout = 10  # seconds

    def handle(self) -> None:
        """Answer one request."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _ThreadedServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class MetricsServer:
    """Answers Prometheus and health checks on a port of its own, while it is open.

    /health: the program runs and can read its journal. /ready: it also takes devices, and says how many are there. Both
    are counts and need no token; everything else is metrics, and needs the token if there is one.
    """

    def __init__(self, path: Path, carrier: Carrier, host: str, port: int, token: str = "") -> None:
        self._path, self._carrier, self._token = path, carrier, token
        self._metrics = make_wsgi_app(registry_of(path, carrier))
        try:
            self._server = make_server(host, port, self._answer, _ThreadedServer, QuietHandler)
        except OSError as error:
            raise FieldError(
                f"Cannot listen on {host}:{port} for metrics: {error.strerror}.", "Choose another."
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer one request."""
        place = environ.get("PATH_INFO", "").rstrip("/")
        if place in ("/health", "/ready"):
            is_right, about = self._check_health(is_ready=place == "/ready")
            start("200 OK" if is_right else "503 Service Unavailable", [("Content-Type", "application/json")])
            return [json.dumps(about).encode()]
        given = environ.get("HTTP_AUTHORIZATION", "")
        if self._token and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
            return [b"The metrics need a token.\n"]
        answer: Iterable[bytes] = self._metrics(environ, start)
        return answer

    def _check_health(self, is_ready: bool) -> tuple[bool, dict[str, Any]]:
        """Return whether the coordinator is healthy, or ready, with counts."""
        try:
            journal = CoordinatorJournal.open(self._path)
            rounds, unagreed = len(journal.rounds.records()), len(journal.members.unagreed)
            journal.close()
        except TacitError:
            return False, {"status": "the journal cannot be read"}
        if not is_ready:
            return True, {"status": "ok", "rounds": rounds}
        doing: CoordinatorStatus | None = getattr(self._carrier, "status", None)
        if doing is None:
            return False, {"status": "starting"}
        counts = {"devices": doing.here, "needed": doing.needed, "new_missing": doing.new_missing}
        return True, {"status": "ready", "phase": doing.phase, **counts, "unagreed": unagreed}

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def read_token_file(path: Path | None) -> str:
    """Return the token that metrics need; empty if there is none."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token of the metrics cannot be read: {error}.", "See metrics_token.") from None
    if len(token) < LEAST_TOKEN:
        raise ConfigError(
            f"The token in '{path}' has {len(token)} characters, and at least {LEAST_TOKEN} are needed.",
            "Make one: openssl rand -hex 20.",
        )
    return token
