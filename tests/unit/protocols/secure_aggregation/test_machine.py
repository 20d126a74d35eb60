"""Any course that a session can take: answers in any order, repeated, strayed, bent, phases closed at any time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from helpers.secure_session import Party
from tacit.errors import AbortedError, SecureSumError
from tacit.protocols.secure_aggregation.graph import plan_masking
from tacit.protocols.secure_aggregation.server import ServerPhase


class Course(RuleBasedStateMachine):
    """Drives one session; the model is who answered in time."""

    most_people = 7

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.start(data)

    def start(self, data: st.DataObject) -> None:
        n_participants = data.draw(st.integers(2, self.most_people))
        ring = n_participants >= 5 and data.draw(st.booleans())
        degree = 4 if ring else plan_masking(n_participants, 0, 0).degree
        self.party = Party.of(n_participants, degree=degree, threshold=degree // 2 + 1)
        self.sent: list[bytes] = []
        self.aborted = False

    @precondition(lambda self: not self.open)
    @rule(data=st.data())
    def start_again(self, data: st.DataObject) -> None:
        self.start(data)

    @property
    def open(self) -> bool:
        return not self.aborted and self.party.server.phase < ServerPhase.DONE

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        waiting = sorted(self.party.inbox.keys() - self.party.server.answered)
        if waiting:
            person = data.draw(st.sampled_from(waiting))
            message = self.party.answer(person)
            assert self.party.server.receive(message) == person
            self.sent.append(message)

    @precondition(lambda self: self.open)
    @rule()
    def all_answer(self) -> None:
        for person in sorted(self.party.inbox.keys() - self.party.server.answered):
            self.sent.append(self.party.answer(person))
            self.party.server.receive(self.sent[-1])

    @precondition(lambda self: self.open and self.sent)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        before = self.party.server.answered, self.party.server.total.tobytes()
        with pytest.raises(SecureSumError):
            self.party.server.receive(data.draw(st.sampled_from(self.sent)))
        assert before == (self.party.server.answered, self.party.server.total.tobytes())

    @precondition(lambda self: self.open and self.sent)
    @rule(data=st.data())
    def bend(self, data: st.DataObject) -> None:
        message = bytearray(data.draw(st.sampled_from(self.sent)))
        message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
        before = self.party.server.answered, self.party.server.total.tobytes()
        with pytest.raises(SecureSumError):
            self.party.server.receive(bytes(message))
        assert before == (self.party.server.answered, self.party.server.total.tobytes())

    @precondition(lambda self: self.open)
    @rule()
    def close(self) -> None:
        try:
            self.party.inbox = self.party.server.advance()
        except AbortedError:
            self.aborted = True
            assert self.party.server.phase == ServerPhase.ABORTED

    @invariant()
    def the_sum_is_masked_until_it_is_right(self) -> None:
        if not hasattr(self, "party"):
            return
        server = self.party.server
        if server.phase == ServerPhase.DONE:
            assert self.party.is_right()
        elif server.phase > ServerPhase.VECTORS and server.survivors:
            assert not self.party.is_right(), "the sum was readable before the last phase"


@pytest.mark.slow
def test_any_course_of_a_session() -> None:
    run_state_machine_as_test(Course, settings=settings(max_examples=25, stateful_step_count=25))


@pytest.mark.fuzz
def test_ten_thousand_courses() -> None:
    class Long(Course):
        most_people = 12

    run_state_machine_as_test(Long, settings=settings(max_examples=10_000, stateful_step_count=40))
