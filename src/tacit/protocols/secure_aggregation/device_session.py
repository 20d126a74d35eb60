"""What a device knows of one session: its keys of this round, its neighbours' keys, and the shares that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.protocols.secure_aggregation import shamir
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.identity import KeyPair, tag
from tacit.protocols.secure_aggregation.messages import Advert, SealedShares
from tacit.protocols.secure_aggregation.pairing import PairKeys, link, share_hash, sharing_key

NONCE = bytes(12)  # each key seals one box, and always the same: see `sharing_key`


@dataclass
class DeviceSession:
    """One session on one device."""

    session: Session
    position: int
    mask_pair: KeyPair
    seal_pair: KeyPair
    seed: bytes  # of the device's own mask
    adverts: dict[int, Advert] = field(default_factory=dict)  # of neighbours who are there
    pair_keys: dict[int, PairKeys] = field(default_factory=dict)
    sharing: frozenset[int] = frozenset()  # neighbours to mask with
    kept: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # shares of others: of self mask, mask key
    survivors: frozenset[int] = frozenset()

    @property
    def context(self) -> bytes:
        """What binds every message to this session."""
        return self.session.context

    @cached_property
    def link_key(self) -> bytes:
        """The key of the codes that close messages to the server."""
        return link(self.seal_pair, self.session.terms.server_key, self.position, self.context)

    def agree_keys(self, adverts: Mapping[int, Advert]) -> dict[int, PairKeys]:
        """Agree on keys with each neighbour."""
        own, at, context = self.seal_pair, self.position, self.context
        return {
            participant: PairKeys.of(own, at, advert.seal_key, participant, context)
            for participant, advert in adverts.items()
        }

    def sharing_key(self, of_self_mask: bool) -> bytes:
        """Return the key of the polynomial that shares the seed of the own mask, or the mask key."""
        return sharing_key(self.context, self.position, self.seal_pair.secret, of_self_mask)

    def append_code(self, body: bytes) -> bytes:
        """Close a message with its code."""
        return body + tag(self.link_key, body)

    def open_box(self, entry: SealedShares) -> tuple[bytes, bytes] | None:
        """Open the box of one neighbour: shares of its self mask's seed and of its mask key; none if one is wrong."""
        participant = entry.participant
        try:
            boxed = AESGCM(self.pair_keys[participant].theirs).decrypt(NONCE, entry.box, self.context)
        except InvalidTag:
            return None
        own, key = boxed[: shamir.SHARE_BYTES], boxed[shamir.SHARE_BYTES :]
        for of_self_mask, share, seen in ((True, own, entry.self_hash), (False, key, entry.key_hash)):
            if (
                not shamir.is_share(share)
                or share_hash(self.context, participant, self.position, of_self_mask, share) != seen
            ):
                return None
        return own, key
