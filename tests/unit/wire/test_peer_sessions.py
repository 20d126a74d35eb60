"""Session keys of peers: whose tickets open, for how long, and that nothing but the two sides is needed."""

from __future__ import annotations

import struct

import pytest

from tacit.wire import peer_sessions
from tacit.wire.peer_messages import HEAD_BYTES, LIFETIME, MODEL, PUSH, PeerSeal
from tacit.wire.peer_records import SKEW, PeerIdentity
from tacit.wire.peer_refusals import PeerMessageError, PeerRefusal
from tacit.wire.peer_sessions import MOST_KEPT, SEALED_BYTES, TICKET_BYTES, USED

NETWORK, SECRET, NOW = bytes(range(32)), bytes(32), 1_800_000_000
ALICE, BOB, EVE = (PeerIdentity.fresh() for _ in range(3))
TO_BOB, TO_EVE = (who.record(NETWORK, NOW) for who in (BOB, EVE))


def fresh(who: PeerIdentity, network: bytes = NETWORK) -> PeerSeal:
    """A peer that has just started: it knows no session."""
    return PeerSeal(who, network, SECRET)


def read(seal: PeerSeal, content: bytes, now: float = NOW) -> bytes:
    envelope = seal.read(content)
    envelope.refuse_if_expired(now)
    seal.refuse_if_forged(envelope)
    return bytes(seal.open(envelope).content)


def refusal(seal: PeerSeal, content: bytes, now: float = NOW) -> PeerRefusal:
    with pytest.raises(PeerMessageError) as caught:
        read(seal, content, now)
    return caught.value.why


def ticket_of(content: bytes) -> bytes:
    return content[HEAD_BYTES : HEAD_BYTES + TICKET_BYTES]


def with_ticket(content: bytes, ticket: bytes) -> bytes:
    return content[:HEAD_BYTES] + ticket + content[HEAD_BYTES + TICKET_BYTES :]


def test_a_session_lasts_a_day_and_the_next_has_another_key() -> None:
    alice, bob = fresh(ALICE), fresh(BOB)
    first, second, last, next_day = (
        alice.seal(TO_BOB, n, NOW + after, MODEL, b"m") for n, after in enumerate((0, 1, USED - 1, USED))
    )
    assert ticket_of(first) == ticket_of(second) == ticket_of(last) != ticket_of(next_day)
    assert read(bob, last, NOW + USED - 1 + LIFETIME) == b"m"  # also at the very end of the last message's life
    assert read(bob, next_day, NOW + USED) == b"m"
    assert ticket_of(alice.seal(TO_BOB, 9, NOW, MODEL, b"m")) != ticket_of(next_day)  # the clock was set back


def test_both_sides_restart_and_go_on() -> None:
    before = fresh(ALICE).seal(TO_BOB, 1, NOW, MODEL, b"before")
    assert read(fresh(BOB), before) == b"before"
    assert read(fresh(BOB), before) == b"before"  # the receiver restarted: it opens the ticket again
    after = fresh(ALICE).seal(TO_BOB, 2, NOW, MODEL, b"after")
    assert ticket_of(after) != ticket_of(before)
    assert read(fresh(BOB), after) == b"after"


def test_equal_messages_are_sealed_by_different_keys() -> None:
    alice = fresh(ALICE)
    one, other = (alice.seal(TO_BOB, 1, NOW, MODEL, b"the same") for _ in range(2))
    assert ticket_of(one) == ticket_of(other)
    assert one[-48:] != other[-48:]


def test_a_ticket_is_of_one_sender_one_receiver_and_one_network() -> None:
    to_bob = fresh(ALICE).seal(TO_BOB, 1, NOW, MODEL, b"m")
    bob = fresh(BOB)
    assert read(bob, to_bob) == b"m"
    by_eve = fresh(EVE).seal(TO_BOB, 1, NOW, MODEL, b"m")
    assert refusal(bob, with_ticket(by_eve, ticket_of(to_bob))) == PeerRefusal.FORGED  # a ticket of another sender
    as_alice = to_bob[:HEAD_BYTES] + by_eve[HEAD_BYTES:]
    assert refusal(bob, as_alice) == PeerRefusal.FORGED
    to_eve = fresh(ALICE).seal(TO_EVE, 1, NOW, MODEL, b"m")
    assert refusal(bob, with_ticket(to_bob, ticket_of(to_eve))) == PeerRefusal.FORGED  # a receiver passes a ticket on
    elsewhere = fresh(ALICE, bytes(32)).seal(BOB.record(bytes(32), NOW), 1, NOW, MODEL, b"m")
    assert refusal(bob, with_ticket(to_bob, ticket_of(elsewhere))) == PeerRefusal.FORGED


def test_whoever_signs_a_copied_key_cannot_have_it_opened() -> None:
    ticket = ticket_of(fresh(ALICE).seal(TO_BOB, 1, NOW, MODEL, b"m"))
    sealed = ticket[8 : 8 + SEALED_BYTES]
    about = NETWORK + EVE.public + BOB.id + ticket[:8]
    signed = ticket[:8] + sealed + EVE.signing.sign(peer_sessions._LABEL + about + sealed)
    by_eve = with_ticket(fresh(EVE).seal(TO_BOB, 1, NOW, MODEL, b"m"), signed)
    assert refusal(fresh(BOB), by_eve) == PeerRefusal.UNSEALED


def test_a_known_ticket_does_not_make_a_message_true() -> None:
    alice, bob = fresh(ALICE), fresh(BOB)
    model, push = (alice.seal(TO_BOB, n, NOW, kind, b"m") for n, kind in ((1, MODEL), (2, PUSH)))
    assert read(bob, model) == b"m"
    body = HEAD_BYTES + TICKET_BYTES
    assert refusal(bob, model[:HEAD_BYTES] + push[HEAD_BYTES:]) == PeerRefusal.UNSEALED  # the head of another message
    assert refusal(bob, model[:body] + push[body:]) == PeerRefusal.UNSEALED
    for at in (5 + 32 + 32 + 16, 5 + 32 + 32 + 16 + 8, body, body + 16, len(model) - 1):  # sequence, expiry, once, body
        changed = bytearray(model)
        changed[at] ^= 1
        with pytest.raises(PeerMessageError):
            read(bob, bytes(changed))
    assert read(bob, push) == b"m"


def test_a_ticket_expires_and_its_expiry_is_signed() -> None:
    alice, bob = fresh(ALICE), fresh(BOB)
    old = ticket_of(alice.seal(TO_BOB, 1, NOW, MODEL, b"m"))
    late = NOW + peer_sessions.LIFETIME + SKEW + 1
    message = alice.seal(TO_BOB, 2, late, MODEL, b"m")
    assert refusal(bob, with_ticket(message, old), late) == PeerRefusal.EXPIRED
    stretched = struct.pack("<Q", late) + old[8:]
    assert refusal(bob, with_ticket(message, stretched), late) == PeerRefusal.FORGED
    too_long = struct.pack("<Q", late + peer_sessions.LIFETIME + SKEW + 1) + old[8:]
    assert refusal(bob, with_ticket(message, too_long), late) == PeerRefusal.EXPIRED


def test_what_is_remembered_is_bounded_and_drawn_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_KEPT >= 100
    monkeypatch.setattr(peer_sessions, "MOST_KEPT", 3)
    alice, bob = fresh(ALICE), fresh(BOB)
    for _ in range(5):
        who = PeerIdentity.fresh()
        alice.seal(who.record(NETWORK, NOW), 1, NOW, MODEL, b"m")
        assert read(bob, fresh(who).seal(TO_BOB, 1, NOW, MODEL, b"m")) == b"m"
    assert len(alice.sessions._drawn) == len(bob.sessions._checked) == 3
    alice.seal(TO_BOB, 1, NOW + USED, MODEL, b"m")
    assert len(alice.sessions._drawn) == 1
