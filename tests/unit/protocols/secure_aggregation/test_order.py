"""Messages out of turn, of other rounds, repeated, forged: a named error, and nothing has changed."""

from __future__ import annotations

from itertools import product

import pytest

from helpers.refusals import refused
from helpers.secure_session import PHASES, Party
from tacit.errors import ForgedError, MessageError, OutOfTurnError, SecureSumError
from tacit.protocols.secure_aggregation.identity import Identity, KeyPair
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.messages import Advert, Roster, Unmasking
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.reasons import ReasonCode


def recorded(party: Party) -> tuple[dict[ServerPhase, dict[int, bytes]], dict[ServerPhase, dict[int, bytes]]]:
    """Run a session and return all that devices received and sent, by phase."""
    received, sent = {}, {}
    for phase in PHASES:
        received[phase] = dict(party.inbox)
        sent[phase] = {person: party.answer(person) for person in sorted(party.inbox)}
        for message in sent[phase].values():
            party.server.receive(message)
        party.inbox = party.server.advance()
    return received, sent


@pytest.fixture(scope="module")
def earlier() -> tuple[Party, dict[ServerPhase, dict[int, bytes]], dict[ServerPhase, dict[int, bytes]]]:
    party = Party.of(4)
    return party, *recorded(party)


def test_no_earlier_message_is_taken_by_a_server_of_a_later_round_or_another_task(
    earlier: tuple[Party, dict[ServerPhase, dict[int, bytes]], dict[ServerPhase, dict[int, bytes]]],
) -> None:
    party, _, sent = earlier
    for later in ({"round": 2}, {"task": "another", "round": 3}, {"model": b"\1" * 32, "round": 4}):
        new = Party.of(4, identities=[device.identity for device in party.devices], **later)
        for _ in PHASES:
            for phase in PHASES:
                for message in sent[phase].values():
                    with pytest.raises(SecureSumError):
                        new.server.receive(message)
            assert not new.server.answered
            new.step()
        assert new.is_right()


def test_no_earlier_message_is_taken_by_a_device_of_a_later_round(
    earlier: tuple[Party, dict[ServerPhase, dict[int, bytes]], dict[ServerPhase, dict[int, bytes]]],
) -> None:
    party, received, sent = earlier
    new = party.again(round=9)
    for _ in PHASES:
        device = new.devices[0]
        before = device.phase, device.history, device.journal.records()
        for phase in PHASES:
            for message in (*received[phase].values(), *sent[phase].values()):
                with pytest.raises(SecureSumError):
                    _answer(device, phase, message, lambda: new.give(0))
        assert before == (device.phase, device.history, device.journal.records())
        new.step()
    assert new.is_right()


def test_a_message_counts_once_and_only_in_its_phase() -> None:
    party = Party.of(3)
    for phase in PHASES:
        for other in PHASES:
            if other != phase and party.devices[0].phase != 0:
                with pytest.raises(SecureSumError):
                    party.answer(0, other)
        message = party.answer(0)
        party.server.receive(message)
        total = party.server.total.tobytes()
        with refused(OutOfTurnError, ReasonCode.REPEATED_ANSWER, sender=0):
            party.server.receive(message)
        with pytest.raises(OutOfTurnError):
            party.answer(0)
        assert party.server.total.tobytes() == total
        for person in (1, 2):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
        with pytest.raises(OutOfTurnError):
            party.server.receive(message)
    assert party.is_right()
    with refused(OutOfTurnError, ReasonCode.OUT_OF_TURN):
        party.server.advance()


def test_a_late_vector_is_refused_unread() -> None:
    party = Party.of(4, threshold=2).run(ServerPhase.VECTORS)
    late = party.answer(3)
    party.step(gone=[3])
    total = party.server.total.tobytes()
    with pytest.raises(OutOfTurnError):
        party.server.receive(late)
    assert party.server.total.tobytes() == total
    party.inbox.pop(3, None)
    party.run()
    assert party.server.survivors == {0, 1, 2}
    assert party.is_right()


def test_no_participant_can_send_in_the_name_of_another() -> None:
    party = Party.of(3)
    for phase, person in product(PHASES, (0,)):
        message = bytearray(party.answer(person))
        if phase != ServerPhase.ADVERTS:
            message[34:38] = (1).to_bytes(4, "little")  # the sender's position
        else:
            message[-1] ^= 1
        code = ReasonCode.BAD_SIGNATURE if phase == ServerPhase.ADVERTS else ReasonCode.BAD_TAG
        with refused(ForgedError, code, sender=int(phase != ServerPhase.ADVERTS)):
            party.server.receive(bytes(message))
        party.server.receive(party.devices[person].last_answer)
        for other in (1, 2):
            party.server.receive(party.answer(other))
        party.inbox = party.server.advance()
    assert party.is_right()


def test_an_advert_must_be_signed_by_the_identity_in_the_cohort() -> None:
    party = Party.of(3)
    made_up_client = Identity.fresh()
    advert = Advert(0, KeyPair.fresh().public, KeyPair.fresh().public, bytes(32))
    signed = advert.signed_part(party.server.context) + made_up_client.sign(advert.signed_part(party.server.context))
    with refused(ForgedError, ReasonCode.BAD_SIGNATURE, sender=0):
        party.server.receive(signed)
    party.step()
    context, roster = Roster.decode(party.inbox[0], 3)
    swapped = tuple(
        Advert(a.sender, KeyPair.fresh().public, a.seal_key, a.commitment, a.signature) for a in roster.adverts
    )
    with refused(ForgedError, ReasonCode.BAD_SIGNATURE, sender=1):
        party.devices[0].share(Roster(roster.present, swapped).encode(context, 3))


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
@pytest.mark.parametrize("which", ["mask", "seal"])
def test_points_of_low_order_are_refused(point: bytes, which: str) -> None:
    party = Party.of(3)
    good = KeyPair.fresh().public
    context, identity = party.server.context, party.devices[1].identity
    bad = Advert(1, point if which == "mask" else good, point if which == "seal" else good, bytes(32))
    message = bad.signed_part(context) + identity.sign(bad.signed_part(context))
    with refused(ForgedError, ReasonCode.BAD_KEY, sender=1):
        party.server.receive(message)
    with refused(ForgedError, ReasonCode.BAD_KEY, sender=1):
        KeyPair.fresh().agree(point, context, b"", 32, 1)


def bent(share: bytes) -> bytes:
    return bytes([share[0] ^ 1]) + share[1:]


def test_a_wrong_share_is_found_its_sender_named_and_the_sum_still_right() -> None:
    party = Party.of(6, threshold=3).run(ServerPhase.UNMASKINGS, leaves={5: ServerPhase.VECTORS})
    device = party.devices[2]
    held = device._state
    assert held is not None
    own, key = held.kept[5]
    held.kept[5] = own, bent(key)
    with refused(ForgedError, ReasonCode.BAD_SHARE, sender=2, participant=5):
        party.server.receive(party.answer(2))
    party.step(gone=[2])
    assert party.is_right()
    assert 2 in party.server.survivors


def test_a_wrong_share_of_a_participant_lost_in_the_last_phase_is_found_too() -> None:
    party = Party.of(6, threshold=3).run(ServerPhase.UNMASKINGS)
    held = party.devices[2]._state
    assert held is not None
    held.kept[5] = bent(held.kept[5][0]), held.kept[5][1]
    party.step(gone=[5])
    assert party.server.blamed == {2}
    assert party.is_right()


def test_a_wrong_seed_or_the_other_kind_of_share_is_found() -> None:
    party = Party.of(4, threshold=2).run(ServerPhase.UNMASKINGS)
    message = party.answer(1)
    _, unmasking, _ = Unmasking.decode(message)
    state = party.devices[1]._state
    assert state is not None
    unasked = (type(unmasking.pieces[0])(0, False, state.kept[0][1]),)
    for other, code in (
        (Unmasking(1, bytes(32), unmasking.pieces), ReasonCode.BROKEN_COMMITMENT),
        (Unmasking(1, unmasking.seed, unasked), ReasonCode.UNREQUESTED_SHARE),
    ):
        with refused(ForgedError, code, sender=1):
            party.server.receive(state.append_code(other.encode(party.server.context)))
    party.server.receive(message)


def test_a_dealer_whose_shares_do_not_fit_is_noted_and_the_others_go_on() -> None:
    party = Party.of(5, threshold=3)
    party.step()
    for person in range(5):
        party.server.receive(party.answer(person))
    box = party.server._shares[4][0]
    party.server._shares[4][0] = type(box)(box.participant, bytes(16), box.key_hash, box.box)
    party.inbox = party.server.advance()
    party.step()
    assert party.devices[0].complaints == {4: ReasonCode.BAD_SHARE}
    assert not party.devices[1].complaints
    party.run()
    assert party.is_right()


def test_bytes_that_are_no_message_are_refused() -> None:
    party = Party.of(3)
    for junk in (b"", b"\1", bytes(34), b"\2" + bytes(40), b"\1\77" + bytes(40)):
        with pytest.raises(MessageError):
            party.server.receive(junk)
