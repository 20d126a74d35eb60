"""When an answer leaves does not tell how long learning took, up to a step."""

from __future__ import annotations

import pytest

from helpers.town_federation import founded, town
from tacit.field.exchange import STEP_SECONDS, seconds_to_wait
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.wire.messages import SecureRequest, write_secure_request

PHASES = tuple(ServerPhase)[:5]


def asked(phase: ServerPhase) -> bytes:
    return write_secure_request(founded("fpl", town()[1]), SecureRequest(3, phase, b"content"))


@pytest.mark.parametrize("elapsed", [0.0, 0.003, 0.2, 0.499, 0.51, 1.7])
def test_what_was_learnt_leaves_at_whole_steps(elapsed: float) -> None:
    waits = seconds_to_wait(asked(ServerPhase.ADVERTS), elapsed)
    assert 0 <= waits < STEP_SECONDS
    steps = (elapsed + waits) / STEP_SECONDS
    assert steps == pytest.approx(round(steps))
    assert round(steps) == -(-elapsed // STEP_SECONDS)


@pytest.mark.parametrize("phase", PHASES[1:])
def test_what_needs_no_learning_does_not_wait(phase: ServerPhase) -> None:
    assert seconds_to_wait(asked(phase), 0.2) == 0
    assert seconds_to_wait(b"anything", 0.2) == 0
