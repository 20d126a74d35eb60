"""What tests say of refusals: the kind of error, the code of its reason, and parameters of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tacit.errors import TacitError
from tacit.reasons import ReasonCode, Value


@contextmanager
def refused(kind: type[TacitError], code: ReasonCode, **parameters: Value) -> Iterator[None]:
    """Expect an error of this kind, for this reason."""
    with pytest.raises(kind) as caught:
        yield
    reason = caught.value.reason
    assert reason is not None
    assert (reason.code, {**reason.parameters, **parameters}) == (code, reason.parameters)
