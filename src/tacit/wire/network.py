"""A network of peers: what all its members agree on. It is public and holds nothing about users.

Its digest stands in every message between peers. The first model follows from `seed`; what is each peer's own follows
from a secret of its device.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from tacit.errors import ConfigError, DataError, WireError
from tacit.methods.base import Gossip, build, names, options
from tacit.plain_text import strip_controls
from tacit.random import Key
from tacit.types import Catalog, Config
from tacit.wire.catalogue import canonical, catalog_bytes, catalog_from, digest_of, strip_names
from tacit.wire.messages import inflate

MAGIC = b"TCPN"
VERSION = 1
MOST_TERMS = 2**20
SEED_BITS = 63
_HEAD = struct.Struct("<4sBI")
_AGAIN = "Ask for another invitation."


class PeerNetwork(Config):
    """Method, options, period and catalogue of a network of peers."""

    format: Literal[1] = 1
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="drawn once, when the network is founded")
    name: str = Field(min_length=1, max_length=80, description="name of the network")
    method: str
    options: dict[str, Any] = Field({}, description="the method's options, all that have an effect")
    catalog: str = Field(pattern=r"^[0-9a-f]{64}$", description="digest of the catalogue")
    seed: int = Field(ge=0, lt=2**SEED_BITS, description="the first model that all peers share follows from it")
    period: float = Field(600.0, gt=0, le=86400, description="seconds between two sendings of a peer")

    @classmethod
    def create(
        cls, id: str, name: str, method: str, given: dict[str, Any], catalog: Catalog, seed: int, period: float = 600.0
    ) -> PeerNetwork:
        """Settle what members agree on; `given` are the options that were set, the others have their defaults."""
        config = options(method, given)
        built = _build_gossip(method, config)
        if "epochs" in config.model_fields_set:
            raise ConfigError(
                "method.epochs has no effect in a network of peers: they go on until they leave.", "Remove it."
            )
        chosen = {name: value for name, value in config.model_dump(mode="json").items() if name != "epochs"}
        public = digest_of(catalog_bytes(peer_catalog(catalog, built)))
        return cls(id=id, name=name, method=method, options=chosen, catalog=public, seed=seed, period=period)

    @cached_property
    def built(self) -> Gossip:
        """The method, ready to learn."""
        return _build_gossip(self.method, options(self.method, self.options))

    @property
    def title(self) -> str:
        """The name, to be shown: its founder may have put anything into it."""
        return strip_controls(self.name)

    @property
    def key(self) -> Key:
        """The public key of the first model."""
        return Key(self.seed).child("learn", "init")

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it."""
        return hashlib.sha256(canonical(self.model_dump(mode="json"))).digest()


def _build_gossip(name: str, config: Config) -> Gossip:
    method = build(name, config)
    if isinstance(method, Gossip):
        return method
    raise ConfigError(f"'{name}' is no method for peers: it is {method.kind}.", f"Use {', '.join(names('gossip'))}.")


def peer_catalog(catalog: Catalog, method: Gossip) -> Catalog:
    """Return the parts of a catalogue that peers need: coordinates where places are learnt, no graph, no popularity."""
    needs_places = getattr(method.config, "model", "") == "prme-g"
    return replace(catalog, coordinates=catalog.coordinates if needs_places else None, graph=None, popularity=None)


def write_network(network: PeerNetwork, catalog: Catalog) -> bytes:
    """Write the terms and the catalogue of a network."""
    terms = canonical(network.model_dump(mode="json"))
    packed = zlib.compress(catalog_bytes(peer_catalog(catalog, network.built)), 9)
    return _HEAD.pack(MAGIC, VERSION, len(terms)) + terms + packed


def network_digest(content: bytes) -> bytes:
    """Return the digest of terms that are stored here: they were checked when they were read as a whole."""
    _, _, length = _HEAD.unpack_from(content)
    return hashlib.sha256(content[_HEAD.size : _HEAD.size + length]).digest()


def read_network(content: bytes, digest: bytes | None = None) -> tuple[PeerNetwork, Catalog]:
    """Read terms and catalogue; both must fit their digests, and the terms the one that an invitation names."""
    if len(content) < _HEAD.size or content[:4] != MAGIC:
        raise WireError("These are not the terms of a network of peers.", _AGAIN)
    _, version, length = _HEAD.unpack_from(content)
    if version != VERSION:
        raise WireError(f"The terms are written in version {version}; this program reads {VERSION}.", "Upgrade Tacit.")
    if length > min(MOST_TERMS, len(content) - _HEAD.size):
        raise WireError("The terms of the network are cut short.", _AGAIN)
    terms, packed = content[_HEAD.size : _HEAD.size + length], content[_HEAD.size + length :]
    try:
        network = PeerNetwork.model_validate_json(terms)
    except ValueError as error:
        named = " ".join(str(error).split())[:200]
        raise WireError(f"This version cannot read the terms of the network: {named}.", "Upgrade Tacit.") from None
    if canonical(network.model_dump(mode="json")) != terms or (digest is not None and network.digest != digest):
        raise WireError("The terms of the network are not those of the invitation.", _AGAIN)
    unpacked = inflate(packed)
    if digest_of(unpacked) != network.catalog:
        raise WireError("The catalogue is another one than the network's.", _AGAIN)
    try:
        network.built  # noqa: B018 - refuses a method or options that this version does not have
        return network, strip_names(catalog_from(unpacked))
    except (DataError, ConfigError) as error:
        raise WireError(error.message, _AGAIN) from None
