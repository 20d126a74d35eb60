"""`tacit serve`: a federation's coordinator from one YAML file."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tacit.errors import ConfigError, FieldError
from tacit.field.catalogue_file import CatalogueChange, compare_catalogues, continue_catalogue, read_catalogue
from tacit.field.certificates import Certificates, load_certificates, make_certificates
from tacit.field.coordinator import Carrier, Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator.allowed_rounds import refuse_readable_only, refuse_unguarded
from tacit.field.coordinator.login import LoginRules, read_login_key, sign_account
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_policy import count_needed, count_used, is_settled
from tacit.field.coordinator.trial import try_round
from tacit.field.coordinator_folder import hold_folder
from tacit.field.invitations import Invitation
from tacit.field.witness import WitnessLine
from tacit.methods.choice import MethodChoice
from tacit.privacy.clipping import ClippingConfig
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.reasons import RoundReason
from tacit.types import Catalog, Config
from tacit.updates import Ring
from tacit.wire.catalogue import catalog_bytes, catalog_from, public_catalog, strip_names
from tacit.wire.federation import Federation, StageTerms

if TYPE_CHECKING:
    from tacit.field.metrics import MetricsServer


log = logging.getLogger("tacit.field.coordinator")


class ServeConfig(Config):
    """A federation and where its coordinator listens."""

    name: str = Field("federation", min_length=1, max_length=80, description="name of the federation")
    folder: Path = Field(
        Path("coordinator"), description="folder for the journal and, if none are given, the certificates"
    )
    catalog: str = Field("town", description="a dataset by name, or a table with columns item[, title, category]")
    graph: bool | str = Field(False, description="for methods that need features: the dataset's graph, or a file")
    hops: int = Field(0, ge=0, le=4, description="hops that the graph is explored from each item")
    vectors: Path | None = Field(
        None, description="file with a public vector of every item, for method.cold_items; new items need one too"
    )
    method: MethodChoice
    ring: Ring = Ring()
    clip: ClippingConfig | None = Field(None, description="bounds on the norm of messages")
    privacy: AgreedPrivacyConfig | Literal["none"] | None = Field(
        None,
        description="differential privacy of every device, or the word none: there is no guarantee; to found a "
        "federation, give one of the two",
    )
    trial: int | None = Field(
        None,
        ge=5,
        le=12,
        description="a trial: masked rounds begin with so few devices, if their users agree when they join; none: 13",
    )
    rounds: RoundRules = RoundRules()
    after: Literal["stay", "end"] = Field(
        "stay", description="after the last round: stay for invitations and for devices that need the model, or end"
    )
    listen: str = Field("127.0.0.1:8443", description="host:port to listen on")
    address: str | None = Field(None, description="host:port that invitations name, if it differs from listen")
    certificate: Path | None = Field(None, description="PEM file; without one, the coordinator makes its own")
    key: Path | None = Field(None, description="PEM file of the certificate's key")
    roots: Path | None = Field(None, description="PEM file that devices must trust, if their machines do not")
    metrics: str | None = Field(
        None, description="host:port for Prometheus, /health and /ready; keep it inside your own network"
    )
    metrics_token: Path | None = Field(
        None, description="file with a token that metrics are given for only; /health and /ready need none"
    )
    login: LoginRules | None = Field(
        None, description="a login server whose signed tokens enrol devices; none: invitations only"
    )

    @property
    def rules(self) -> RoundRules:
        """How rounds are run, in a trial as well."""
        return self.rounds.in_trial(self.trial)

    @property
    def guarantee(self) -> AgreedPrivacyConfig | None:
        """The differential privacy that members agree on, if they do."""
        return None if self.privacy == "none" else self.privacy

    @property
    def public(self) -> str:
        """Where devices find it."""
        return self.address or self.listen


def open_federation(
    config: ServeConfig, seed: int | None = None, amends: bool = False, is_trial: bool = False
) -> CoordinatorJournal:
    """Found the federation, or continue it; where it `amends`, a changed catalogue is published.

    Other terms cannot change once it is founded. A `seed` is for comparisons with a simulation; without one the
    coordinator draws its own. A trial uses a copy of the journal in memory.
    """
    path = config.folder / "journal.db"
    given = config.method.options.model_dump(mode="json", exclude_unset=True)
    if not path.exists():
        authority = Identity.fresh()
        federation, catalog = plan_federation(config, authority)
        return CoordinatorJournal.create(path, federation, catalog, seed, authority)
    journal = CoordinatorJournal.open(path, is_trial)
    try:
        agreed = journal.federation
        wanted = Federation.create(
            agreed.id, config.name, config.method.name, given, journal.catalog, **_stages(config)
        )
        if differs := wanted.list_differences(agreed):
            raise ConfigError(
                f"The federation in '{path}' was founded with other values of {', '.join(differs)}.",
                "Its members agreed to those: they fix what leaves a device, and what its numbers mean. Restore them, "
                + (
                    "or ask the members to agree to another method: tacit federation replace-method."
                    if {*differs} <= {"method", "options"}
                    else "or choose another folder for a new federation."
                ),
            )
        if amends:
            publish_catalogue(config, journal)
    except BaseException:
        journal.close()
        raise
    return journal


def plan_federation(config: ServeConfig, authority: Identity) -> tuple[Federation, Catalog]:
    """Return the federation that a configuration would found; what cannot run is refused here, not in a round."""
    _refuse_unsaid_guarantee(config)
    given = config.method.options.model_dump(mode="json", exclude_unset=True)
    catalog = _catalog(config)
    terms: StageTerms = {**_stages(config), "authority": authority.public.hex()}
    federation = Federation.create(secrets.token_hex(16), config.name, config.method.name, given, catalog, **terms)
    refuse_readable_only(federation.built.spec, config.rules)
    refuse_unguarded(federation, config.rules)
    try_round(federation, catalog)
    return federation, catalog


def _refuse_unsaid_guarantee(config: ServeConfig) -> None:
    """Refuse to found a federation without a guarantee by default; a trial has none, and its operator has said so."""
    if config.privacy is None and config.trial is None:
        raise ConfigError(
            f"The configuration of '{config.name}' does not say whether the new federation has a guarantee of "
            "differential privacy: the option 'privacy' is missing.",
            "Add one line. 'privacy: none': over time, sums tell something of each user, and each is asked to accept "
            "that. 'privacy: {epsilon: 4, delta: 1.0e-5}', with the method dp-svd: that has a bound, and quality is "
            "lower (a whole file: examples/field_private.yaml). docs/deploy.md says how to choose.",
        )


def publish_catalogue(
    config: ServeConfig, journal: CoordinatorJournal, is_trial: bool = False
) -> CatalogueChange | None:
    """Publish the operator's catalogue if it has changed, and return in what; nothing is changed by a trial."""
    federation = journal.federation
    before = journal.amendments.at(federation.number)[1]
    after = public_catalog(continue_catalogue(before, strip_names(_catalog(config))), federation.built)
    if catalog_bytes(after) == catalog_bytes(before):
        return None
    after = catalog_from(catalog_bytes(after))  # as devices will read it
    try_round(federation.amend(federation.catalog), after)
    change = compare_catalogues(before, after)
    if not is_trial:
        journal.publish(after)
        about = {"amendment": journal.federation.number, "items": after.n_items, **vars(change)}
        log.info("catalogue published", extra={"fields": about})
    return change


def replace_method(config: ServeConfig) -> Federation:
    """Publish the method of a configuration in place of the one in force; return the federation after it.

    Everything else must be as agreed. Enrolments, catalogue and the numbers of rounds stay; the model begins anew.
    """
    journal = CoordinatorJournal.open(config.folder / "journal.db")
    try:
        agreed = journal.federation
        given = config.method.options.model_dump(mode="json", exclude_unset=True)
        catalog = _catalog(config)
        wanted = Federation.create(agreed.id, config.name, config.method.name, given, catalog, **_stages(config))
        if differs := {*wanted.list_differences(agreed)} - {"method", "options"}:
            raise ConfigError(
                f"The federation was founded with other values of {', '.join(sorted(differs))}.",
                "Only the method and its options can be replaced. Restore the others.",
            )
        if wanted.learns_like(agreed):
            raise ConfigError("The federation has this method with these options already.", "There is nothing to do.")
        refuse_readable_only(wanted.built.spec, config.rules)
        refuse_unguarded(wanted, config.rules)
        before = journal.amendments.at(agreed.number)[1]
        after = public_catalog(continue_catalogue(before, strip_names(catalog)), wanted.built)
        after = catalog_from(catalog_bytes(after))  # as devices will read it
        try_round(wanted, after)
        journal.replace_method(wanted.method, wanted.options, after)
        log.info("method replaced", extra={"fields": {"amendment": agreed.number + 1, "method": wanted.method}})
        return journal.federation
    finally:
        journal.close()


def _catalog(config: ServeConfig) -> Catalog:
    return read_catalogue(config.catalog, config.graph, config.hops, config.vectors)


def _stages(config: ServeConfig) -> StageTerms:
    return {"ring": config.ring, "clip": config.clip, "privacy": config.guarantee, "trial": config.trial}


def find_certificates(config: ServeConfig) -> Certificates:
    """Return the operator's certificate, or one of the coordinator's own."""
    if config.certificate is not None and config.key is not None:
        return load_certificates(config.certificate, config.key, config.roots)
    if config.certificate is not None or config.key is not None:
        raise ConfigError("Only one of certificate and key is given.", "Give both, or neither.")
    return make_certificates(config.folder / "tls", host_port(config.public)[0])


def make_invitation(config: ServeConfig, journal: CoordinatorJournal, days: float) -> str:
    """Make one line that enrols one device."""
    return make_invitations(config, journal, days, 1)[0]


def make_invitations(
    config: ServeConfig, journal: CoordinatorJournal, days: float, count: int, label: str = ""
) -> list[str]:
    """Make lines that enrol one device each; their label stays here."""
    roots, named = find_certificates(config).roots, config.rounds.witness
    witness = "" if named is None else named.key
    words = journal.invitations.make_many(count, int(time.time() + days * 86_400), label)
    return [Invitation(config.public, word, roots, witness).line() for word in words]


def make_login_line(config: ServeConfig, journal: CoordinatorJournal, key: Path, account: str, days: float) -> str:
    """Make a line that enrols a device of an account, as the login server may."""
    signer = read_login_key(key)
    if config.login is None or signer.public.hex() != config.login.key:
        raise ConfigError(f"'{key}' is not the key of this federation's login.", "See the option login.key.")
    word = sign_account(signer, journal.federation.id, account, days)
    witness = "" if config.rounds.witness is None else config.rounds.witness.key
    return Invitation(config.public, word, find_certificates(config).roots, witness).line()


def make_witness_line(config: ServeConfig, journal: CoordinatorJournal) -> str:
    """Make the line with which a witness finds this federation; it holds no secret."""
    federation = journal.federation
    return WitnessLine(config.public, find_certificates(config).roots, federation.id, federation.title).line()


def serve(
    config: ServeConfig,
    on_round: Callable[[RoundRecord], None] = lambda happened: None,
    beside: Callable[[Path, Carrier], AbstractContextManager[object]] = lambda journal, carrier: nullcontext(),
    on_start: Callable[[int, int], None] = lambda devices, done: None,
    on_end: Callable[[RoundReason | None], None] = lambda ended: None,
) -> RoundReason | None:
    """Run the rounds that are left, and give out the model, for ever if the configuration says so.

    Return why there were fewer rounds than agreed, if there were.


    `beside` is open meanwhile. `on_start` is called as soon as devices can connect, with how many are waited for and
    how many rounds are done. `on_end` is called when all rounds are done, with the reason if there were fewer.
    """
    with hold_folder(config.folder):
        return _serve(config, on_round, beside, on_start, on_end)


def _serve(
    config: ServeConfig,
    on_round: Callable[[RoundRecord], None],
    beside: Callable[[Path, Carrier], AbstractContextManager[object]],
    on_start: Callable[[int, int], None],
    on_end: Callable[[RoundReason | None], None],
) -> RoundReason | None:
    from tacit.field.carriers.superlink import SuperLink

    journal, tls = open_federation(config, amends=True), find_certificates(config)
    link = SuperLink(journal, *host_port(config.listen), tls.certificate, tls.key, config.rounds.witness, config.login)
    metrics = None
    try:
        if config.metrics is not None:
            metrics = _start_metrics(config, journal.path, link)
        on_start(
            count_needed(config.rules, is_settled(config.rules, journal), journal), count_used(journal.rounds.records())
        )
        with beside(journal.path, link):
            coordinator = Coordinator(journal, config.rules, link)
            ended = coordinator.run(on_round)
            on_end(ended)
            if config.after == "stay":
                coordinator.keep_distributing()
            return ended
    finally:
        if metrics is not None:
            metrics.close()
        link.close()
        journal.close()


def _start_metrics(config: ServeConfig, path: Path, carrier: Carrier) -> MetricsServer:
    """Answer Prometheus; the library is loaded here, because only a coordinator that offers metrics needs it."""
    try:
        from tacit.field.metrics import MetricsServer, read_token_file
    except ModuleNotFoundError as error:
        raise FieldError(
            f"The metrics need the package '{error.name}', which is not installed.",
            "In the folder of Tacit's source, run: make field. Or leave the option 'metrics' out.",
        ) from None
    return MetricsServer(path, carrier, *host_port(config.metrics or ""), read_token_file(config.metrics_token))


def host_port(text: str) -> tuple[str, int]:
    """Take 'host:port' apart."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ConfigError(f"'{text}' is not host:port.", "Write 127.0.0.1:8443.")
    return host.strip("[]"), int(port)
