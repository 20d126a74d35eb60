"""One device that lies in secure sums: it has its own keys, and sends what it likes instead of what it should."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from helpers.loopback_federation import Field
from tacit.errors import TacitError
from tacit.field.carriers.loopback import Loopback
from tacit.field.exchange import respond
from tacit.protocols.secure_aggregation import ServerPhase, shamir
from tacit.protocols.secure_aggregation.device_session import DeviceSession
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.messages import Advert, Codes, SealedShares, Shares, Unmasking
from tacit.protocols.secure_aggregation.pairing import share_hash
from tacit.reasons import ReasonCode
from tacit.wire.messages import read_secure_reply, read_secure_request, write_secure_reply

ADVERTS, SHARES, VECTORS, CONFIRMATIONS, UNMASKINGS = tuple(ServerPhase)[:5]
Lie = Callable[[bytes, DeviceSession, Identity], bytes | None]
"""Makes of an honest message another one; none: nothing is sent."""


def silent(body: bytes, state: DeviceSession, identity: Identity) -> bytes | None:
    return None


def garbage(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    return secrets.token_bytes(200)


def longer(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    return body + bytes(2**20)


def other_tag(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    """Of an advert the end is its signature, of others the code for the server."""
    return body[:-1] + bytes([body[-1] ^ 1])


def _signed(advert: Advert, state: DeviceSession, identity: Identity) -> bytes:
    return replace(advert, signature=identity.sign(advert.signed_part(state.context))).encode(state.context)


def same_keys(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    advert = Advert.decode(body)[1]
    return _signed(replace(advert, mask_key=advert.seal_key), state, identity)


def low_order(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    return _signed(replace(Advert.decode(body)[1], mask_key=bytes(32)), state, identity)


def for_others(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    shares = Shares.decode(body)[1]
    return state.append_code(replace(shares, entries=shares.entries[1:]).encode(state.context))


def closed_boxes(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    shares = Shares.decode(body)[1]
    entries = tuple(entry._replace(box=secrets.token_bytes(len(entry.box))) for entry in shares.entries)
    return state.append_code(replace(shares, entries=entries).encode(state.context))


def false_shares(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    """Every box opens and fits its hash, but together the shares give another secret than was committed to."""
    entries = []
    for entry in Shares.decode(body)[1].entries:
        seal = AESGCM(state.pair_keys[entry.participant].mine)
        own, key = (secrets.randbelow(2**250).to_bytes(shamir.SHARE_BYTES, "little") for _ in range(2))
        hashes = [
            share_hash(state.context, state.position, entry.participant, is_own, share)
            for is_own, share in ((True, own), (False, key))
        ]
        entries.append(SealedShares(entry.participant, *hashes, seal.encrypt(bytes(12), own + key, state.context)))
    return state.append_code(Shares(state.position, tuple(entries)).encode(state.context))


def short(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    return state.append_code(body[:-24])


def other_codes(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    _, sender, codes, _ = Codes.decode_sent(body)
    wrong = Codes(tuple((participant, secrets.token_bytes(16)) for participant, _ in codes.entries))
    return state.append_code(wrong.encode(state.context, sender))


def other_seed(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    unmasking = Unmasking.decode(body)[1]
    return state.append_code(replace(unmasking, seed=secrets.token_bytes(32)).encode(state.context))


def other_kind(body: bytes, state: DeviceSession, identity: Identity) -> bytes:
    """Shares of the other kind than was asked for: together with those of others both masks would come off."""
    unmasking = Unmasking.decode(body)[1]
    pieces = tuple(piece._replace(of_self_mask=not piece.of_self_mask) for piece in unmasking.pieces)
    return state.append_code(replace(unmasking, pieces=pieces).encode(state.context))


LIES: dict[str, tuple[Mapping[ServerPhase, Lie], ReasonCode | None]] = {
    "garbage for an advert": ({ADVERTS: garbage}, ReasonCode.MALFORMED_MESSAGE),
    "an advert that it did not sign": ({ADVERTS: other_tag}, ReasonCode.BAD_SIGNATURE),
    "one key for two purposes": ({ADVERTS: same_keys}, ReasonCode.REPEATED_KEY),
    "a key of low order": ({ADVERTS: low_order}, ReasonCode.BAD_KEY),
    "a megabyte": ({ADVERTS: longer}, ReasonCode.MALFORMED_MESSAGE),
    "shares without a neighbour": ({SHARES: for_others}, ReasonCode.WRONG_RECIPIENTS),
    "shares with another tag": ({SHARES: other_tag}, ReasonCode.BAD_TAG),
    "boxes that nobody can open": ({SHARES: closed_boxes}, ReasonCode.BAD_SHARE),
    "false shares, and silence at the end": (
        {SHARES: false_shares, UNMASKINGS: silent}, ReasonCode.BROKEN_COMMITMENT
    ),
    "a vector that is too short": ({VECTORS: short}, ReasonCode.MALFORMED_MESSAGE),
    "a vector with another tag": ({VECTORS: other_tag}, ReasonCode.BAD_TAG),
    "codes that confirm nothing": ({CONFIRMATIONS: other_codes}, ReasonCode.BAD_CONFIRMATION),
    "another seed than it committed to": ({UNMASKINGS: other_seed}, ReasonCode.BROKEN_COMMITMENT),
    "shares of the other kind": ({UNMASKINGS: other_kind}, ReasonCode.UNREQUESTED_SHARE),
    "silence after its keys": ({SHARES: silent}, None),
}  # fmt: skip
"""What it does in which phases, and the code by which it is named; no answer is no lie, and names no device."""


class LyingDevice(Loopback):
    """A carrier in which one device lies, from some round on."""

    def __init__(self, field: Field, lies: Mapping[ServerPhase, Lie], adversary: int, since: int = 0) -> None:
        super().__init__(field.devices)
        self.field, self.lies, self.adversary, self.since = field, lies, adversary, since
        self.times = 0  # that it lied

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            answers: list[bytes] = []
            try:
                respond(self.devices[number], content, answers.append)
            except TacitError:
                continue
            sent = self._bent(content, answers[0]) if number == self.adversary else answers[0]
            if sent is not None:
                yield number, sent

    def _bent(self, content: bytes, answer: bytes) -> bytes | None:
        turn = read_secure_request(self.field.federation, content)
        lie = self.lies.get(ServerPhase(turn.phase))
        if lie is None or turn.round < self.since:
            return answer
        self.times += 1
        rounds = self.devices[self.adversary]._masked
        assert rounds._machine is not None
        assert rounds._machine._state is not None
        body = lie(
            read_secure_reply(self.field.federation, turn.round, answer), rounds._machine._state, rounds.identity
        )
        return None if body is None else write_secure_reply(self.field.federation, turn.round, body)
