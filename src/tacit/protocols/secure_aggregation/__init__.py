"""The secure sum: the server learns what a cohort sends together, and nothing of what each one sends.

Two state machines that know no transport, no clock and no method. Bytes in, bytes out; an error is named
(`tacit.errors.SecureSumError` and below) and changes nothing.

    identity = Identity.fresh()                      a device's long-term key
    device = SecureDevice(identity, DevicePolicy(), journal)     continues from its journal after a restart
    server = SecureServer.start(terms, identities)

    phase            the server sends          the device answers
    adverts          server.invitation         device.advertise(invitation)
    shares           server.advance()[i]       device.share(roster)
    vectors          server.advance()[i]       device.submit(inbox, encode_message(message, layout))
    confirmations    server.advance()[i]       device.confirm(survivors)
    unmaskings       server.advance()[i]       device.unmask(confirmed)
    done             server.advance(); server.total, server.survivors

Each answer goes to `server.receive`; `server.answered` says who has answered in this phase, and the carrier of the
messages decides when to close it. `i` is a position in `server.session.cohort`. In between, a device process may end:
`SecureDevice(identity, device_policy, journal)` is again where it was, and `last_answer` may be sent once more, as it
is. After the last phase, or to stop waiting, call `device.leave()`.

`Terms` say what is summed (`VectorLayout`, from `rows_layout` or `counts_layout`), for whom at least, and on which
graph (`plan_masking`).
"""

from tacit.protocols.secure_aggregation.context import Session, Terms
from tacit.protocols.secure_aggregation.device import DevicePhase, SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.encoding import (
    VectorLayout,
    counts_layout,
    decode_counts,
    decode_sum,
    encode_message,
    rows_layout,
)
from tacit.protocols.secure_aggregation.graph import MaskingPlan, plan_masking
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.journal import MemoryJournal
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase

__all__ = [
    "DevicePhase",
    "DevicePolicy",
    "Identity",
    "MaskingPlan",
    "MemoryJournal",
    "SecureDevice",
    "SecureServer",
    "ServerPhase",
    "Session",
    "Terms",
    "Vector",
    "VectorLayout",
    "counts_layout",
    "decode_counts",
    "decode_sum",
    "encode_message",
    "plan_masking",
    "rows_layout",
]
