"""The secure sum: the server learns what a cohort sends together, and nothing of what each one sends.

Two state machines that know no transport, no clock and no method. Bytes in, bytes out; an error is named
(`tacit.errors.SecureSumError` and below) and changes nothing.

    identity = Identity.fresh()                      a device's long-term key
    device = Device(identity, Guards(), journal)     continues from its journal after a restart
    server = Server.start(terms, identities)

    phase            the server sends          the device answers
    adverts          server.invitation         device.advertise(invitation)
    shares           server.advance()[i]       device.share(roster)
    vectors          server.advance()[i]       device.submit(inbox, encoded(outgoing, layout))
    confirmations    server.advance()[i]       device.confirm(survivors)
    unmaskings       server.advance()[i]       device.unmask(confirmed)
    done             server.advance(); server.total, server.survivors

Each answer goes to `server.receive`; `server.answered` says who has spoken in this phase, and whoever carries the
messages decides when to close it. `i` is a position in `server.session.cohort`. In between, a device process may end:
`Device(identity, guards, journal)` is again where it was, and `last_answer` may be sent once more, as it is. After
the last phase, or when tired of waiting, `device.leave()`.

`Terms` say what is summed (`Layout`, from `rows_layout` or `people_layout`), for whom at least, and on which graph
(`plan`).
"""

from tacit.privacy.secure.context import Session, Terms
from tacit.privacy.secure.device import Device, Phase
from tacit.privacy.secure.encoding import Layout, decoded, encoded, people_layout, people_of, rows_layout
from tacit.privacy.secure.graph import Plan, plan
from tacit.privacy.secure.guards import Guards
from tacit.privacy.secure.identity import Identity
from tacit.privacy.secure.journal import Memory
from tacit.privacy.secure.masks import Vector
from tacit.privacy.secure.server import Server, Stand

__all__ = [
    "Device",
    "Guards",
    "Identity",
    "Layout",
    "Memory",
    "Phase",
    "Plan",
    "Server",
    "Session",
    "Stand",
    "Terms",
    "Vector",
    "decoded",
    "encoded",
    "people_layout",
    "people_of",
    "plan",
    "rows_layout",
]
