"""A federation: what all its members agree on before the first round. It is public and holds nothing about clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from pydantic import Field

from tacit.errors import ConfigError, WireError
from tacit.methods.base import Federated, build_federated, options
from tacit.plain_text import strip_controls
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.dp import AgreedPrivacyConfig, DifferentialPrivacy
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.protocols.guarantee import contribution_spec, first_shared, has_equal_shares, refuse_unaccounted
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.random import Key
from tacit.types import Array, Catalog, Config
from tacit.updates import Ring
from tacit.wire.catalogue import canonical, catalog_bytes, digest_of, public_catalog

_NOT_HERE = {
    "pi": "users decide what leaves their devices",
    "warm_start": "a device reads no folder that another party names",
}
_AMENDED = {"catalog", "version", "authority"}
MANY = 10_000  # devices, where their number is not known
LARGEST_LEARNT = 1e3  # vectors that rank well stay far below: a model beyond it has diverged, or is an attack


class StageTerms(TypedDict, total=False):
    """What the stages of all updates are, beside each user's own."""

    ring: Ring | None
    clip: ClippingConfig | None
    privacy: AgreedPrivacyConfig | None
    trial: int | None
    authority: str | None


class FederationVersion(Config):
    """Which amendment of a federation this is: the digests of the terms before it, and of those it was founded on."""

    number: int = Field(ge=1)
    founded: str = Field(pattern=r"^[0-9a-f]{64}$")
    before: str = Field(pattern=r"^[0-9a-f]{64}$")


class Federation(Config):
    """Method, options, ring and catalogue of a federation. Its digest stands in every message."""

    format: Literal[1] = 1
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="drawn once, when the federation is founded")
    name: str = Field(min_length=1, max_length=80, description="name of the federation")
    method: str
    options: dict[str, Any] = Field({}, description="the method's options, all of them")
    ring: Ring = Ring()
    clip: ClippingConfig | None = Field(None, description="bounds on the norm of messages; applied after disclosure")
    catalog: str = Field(pattern=r"^[0-9a-f]{64}$", description="digest of the catalogue")
    privacy: AgreedPrivacyConfig | None = Field(
        None, description="differential privacy of every device; none: there is no guarantee"
    )
    trial: int | None = Field(
        None,
        ge=5,
        le=12,
        description="a trial: masked rounds begin with so few devices; none: it is not one",
    )
    authority: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="public key that signs amendments; none: whoever holds the line"
    )
    version: FederationVersion | None = Field(None, description="the last amendment; none: as it was founded")

    @classmethod
    def create(
        cls,
        id: str,
        name: str,
        method: str,
        given: dict[str, Any],
        catalog: Catalog,
        **terms: Unpack[StageTerms],
    ) -> Federation:
        """Settle what members agree on; `given` are the options that were set, the others have their defaults.

        The method must be one that can learn on devices; `coordinator.trial` shows by a round that this one can.
        """
        config = options(method, given)
        built = build_federated(method, config)
        for option in built.spec.schedule_options:
            if option in config.model_fields_set:
                raise ConfigError(
                    f"method.{option} has no effect in a federation: its coordinator decides how many rounds there are "
                    "and which devices they ask.",
                    "Remove it; see rounds.rounds and rounds.clients_per_round.",
                )
        chosen = {k: v for k, v in config.model_dump(mode="json").items() if k not in built.spec.schedule_options}
        federation = cls(
            id=id,
            name=name,
            method=method,
            options=chosen,
            catalog=digest_of(catalog_bytes(public_catalog(catalog, built))),
            **{name: term for name, term in terms.items() if term is not None},
        ).check_method()
        federation.check_guarantee(catalog)
        return federation

    def check_method(self) -> Federation:
        """Refuse a method that cannot run in the field."""
        build_federated(self.method, self.config)
        for option, why in _NOT_HERE.items():
            if getattr(self.config, option, None) is not None:
                raise ConfigError(f"method.{option} has no effect in a federation: {why}.", "Remove it.")
        if self.privacy is not None and self.trial is not None:
            raise ConfigError(
                "A trial with so few devices has no guarantee of differential privacy.", "Remove trial, or privacy."
            )
        if self.privacy is not None:
            self._check_guarantee(self.privacy)
        return self

    def check_terms(self, catalog: Catalog) -> None:
        """Refuse terms with which no device can learn, or whose guarantee cannot hold; devices check it themselves."""
        self.first_model(catalog, Key(0))
        self.check_guarantee(catalog)

    def check_guarantee(self, catalog: Catalog) -> None:
        """Refuse a method that reveals anything, or too much, beside the noisy sums of a guarantee."""
        if self.guarantee is not None:
            refuse_unaccounted(self.built, catalog)
            self._refuse_coarse_noise(self.guarantee, catalog)

    def policy(self, device_policy: DevicePolicy) -> DevicePolicy:
        """Return the limits that hold here: with a guarantee the noise does what some are for; a trial lowers them."""
        if self.trial is not None:
            return device_policy.in_trial(self.trial)
        return device_policy if self.privacy is None else device_policy.under_noise()

    def _check_guarantee(self, privacy: AgreedPrivacyConfig) -> None:
        """Refuse terms from which no guarantee follows."""
        has_shares = not has_equal_shares(self.built)
        if has_shares == (privacy.participations is not None):
            raise ConfigError(
                f"privacy.participations has no effect: {self.method} decides what each of its sums spends."
                if has_shares
                else "privacy.participations is missing: the budget is spent in equal parts; of how many sums?",
                "Remove it." if has_shares else "Set it to the number of sums that a device is in.",
            )
        assert self.guarantee is not None  # refused there, if it cannot hold

    def _refuse_coarse_noise(self, privacy: DifferentialPrivacy, catalog: Catalog) -> None:
        """Refuse noise in steps so coarse that sums like the first would cost more than epsilon together."""
        first = self.first_model(catalog, Key(0))
        privacy.refuse_coarse(self.path().budget_share(first), MANY, self.built.shapes(first))

    @cached_property
    def built(self) -> Federated:
        """The method, ready to learn."""
        return build_federated(self.method, self.config)

    @cached_property
    def config(self) -> Config:
        """The method's options, checked."""
        return options(self.method, self.options)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all updates, after the user's own disclosure; that of a guarantee is the last."""
        clipping = () if self.clip is None else (Clipping.build(self.clip),)
        return clipping if self.guarantee is None else (*clipping, self.guarantee)

    @cached_property
    def guarantee(self) -> DifferentialPrivacy | None:
        """The stage that bounds what a device adds, and knows the noise that it adds; none without a guarantee."""
        if self.privacy is None:
            return None
        of = contribution_spec(self.built, self.privacy.participations or 1)
        return DifferentialPrivacy.build(self.privacy.config(), of, self.ring, 1)

    def canonical(self) -> bytes:
        """Return the one way to write it."""
        later = (
            "privacy",
            "trial",
            "authority",
            "version",
        )  # absent: the digest of earlier versions
        without = {name for name in later if getattr(self, name) is None}
        return canonical(self.model_dump(mode="json", exclude=without))

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it."""
        return hashlib.sha256(self.canonical()).digest()

    @cached_property
    def lineage(self) -> bytes:
        """The digest of the terms it was founded on: what devices remember of it holds over amendments."""
        return self.digest if self.version is None else bytes.fromhex(self.version.founded)

    @property
    def number(self) -> int:
        """How often it was amended."""
        return 0 if self.version is None else self.version.number

    def amend(self, catalog: str, method: str = "", chosen: Mapping[str, Any] | None = None) -> Federation:
        """Return the federation after one more amendment, with a catalogue of this digest.

        A `method` with `chosen` options takes the place of the one before; its schedule stays the coordinator's.
        """
        version = FederationVersion(number=self.number + 1, founded=self.lineage.hex(), before=self.digest.hex())
        terms = {name: getattr(self, name) for name in type(self).model_fields}
        replaced = {} if not method else {"method": method, "options": dict(chosen or {})}
        return self.model_validate({**terms, **replaced, "catalog": catalog, "version": version})

    def learns_like(self, other: Federation) -> bool:
        """Say whether two federations have the same method with the same options: models of one fit the other."""
        return (self.method, self.config) == (other.method, other.config)

    def path(self, *own: Stage) -> UpdatePath:
        """Return the stages of updates: the user's own, then those that all members agreed on."""
        return UpdatePath(self.built, (*own, *self.stages), self.ring)

    @property
    def title(self) -> str:
        """The name, to be shown: its founder may have put anything into it."""
        return strip_controls(self.name)

    def list_differences(self, other: Federation) -> list[str]:
        """Return the terms in which two federations differ; what may be amended, and the schedule, are none of them."""
        mine, theirs = ({**f.model_dump(), "options": f.config.model_dump()} for f in (self, other))
        for option in self.built.spec.schedule_options:
            mine["options"].pop(option), theirs["options"].pop(option, None)
        return [name for name in mine if name not in _AMENDED and mine[name] != theirs[name]]

    def first_model(self, catalog: Catalog, key: Key, n_clients: int = 1) -> dict[str, Array]:
        """Return the shared arrays before the first round. No history is at hand, so they must not depend on any.

        Client tables have a row for each of `n_clients`.
        """
        first, name = first_shared(self.built, catalog, key, n_clients)
        if name is not None:
            raise ConfigError(
                f"The first '{name}' of {self.method} depends on the histories, which stay on the devices.",
                f"Set its value: method.{name}.",
            )
        return first

    def constants(self, catalog: Catalog) -> dict[str, Array]:
        """Return the shared arrays that follow from options and catalogue alone, and are never sent."""
        first = self.first_model(catalog, Key(0)) if self.built.spec.constants else {}
        return {name: first[name] for name in self.built.spec.constants}

    def check_model(self, shared: Mapping[str, Array], first: Mapping[str, Array]) -> None:
        """Refuse a model that cannot have come from the `first` one: other arrays, shapes or types, other constants.

        A model with a number that learning never reaches is refused too, before any device learns from it.
        """
        spec = self.built.spec
        seen = {name: (str(a.dtype), a.shape) for name, a in shared.items() if name not in spec.constants}
        agreed = {name: (str(first[name].dtype), first[name].shape) for name in spec.downloads}
        if seen != agreed:
            raise WireError(
                f"The model is of another catalogue or version: its arrays are {seen}, not {agreed}.",
                "Join again with a new invitation.",
            )
        for name in spec.downloads:
            largest = float(np.abs(shared[name]).max(initial=0.0))
            if not largest < LARGEST_LEARNT:  # NaN is not
                raise WireError(
                    f"'{name}' of the model holds {largest:.3g}; what is learnt stays below {LARGEST_LEARNT:g}.",
                    "Its sender's learning has diverged, or it is an attack: nothing was changed here.",
                )
        for name in spec.constants:  # earlier versions sent them
            if name in shared and not np.array_equal(shared[name], first[name]):
                raise WireError(
                    f"'{name}' of the model is {shared[name]}, but the members agreed on {first[name]}.",
                    "The sender has changed the terms of the federation. The model was not taken over.",
                )

    def download(self, shared: Mapping[str, Array], client: int = 0) -> dict[str, Array]:
        """Return the arrays that a device receives; of client tables, the row of its number."""
        spec = self.built.spec
        own = {name: shared[name][client : client + 1] for name in spec.client_tables}
        return {name: own.get(name, shared[name]) for name in spec.downloads}
