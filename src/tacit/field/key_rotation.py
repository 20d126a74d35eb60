"""New keys of a device: for the connection to its coordinator, and for signing in the name of its identity.

The identity signs that the new key of the connection takes the place of the old one. That another key signs for the
identity is signed by both keys, and becomes a notice that all devices see (`tacit.protocols.notices`).

New keys are on disk before the coordinator is asked, and the old ones until it has agreed. After a crash at any point
the same change is asked for again; a coordinator that has made it already agrees. A device that takes part asks by
itself once the old key of its connection is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tacit.errors import FieldError, ForgedError, MessageError
from tacit.field.coordinator_requests import CoordinatorRequests, NoAnswerError
from tacit.field.device import Device
from tacit.field.device.device_file import NEXT_IDENTITY, NEXT_KEY
from tacit.field.directory_notices import fetch_notices
from tacit.field.invitations import draw_key, public_half
from tacit.protocols.secure_aggregation import Identity

HAND_OVER, NEW_IDENTITY_KEY = "/v1/tacit/hand-over", "/v1/tacit/new-identity-key"


def change_key(device: Device) -> None:
    """Ask the coordinator to know this device by a new key, and use that from now on."""
    line = device.connection
    if not line:
        raise FieldError("This device has no coordinator.", "Join a federation with an invitation: tacit device join.")
    device.participation.take_lock()  # the connection of a program that takes part would end
    if NEXT_KEY not in line and NEXT_IDENTITY not in line:
        drawn = {NEXT_KEY: draw_key(), NEXT_IDENTITY: device.keys.draw_next().secret.hex()}
        device.keep_connection({**line, **drawn})
    finish_change(device)


def finish_change(device: Device) -> None:
    """Ask for a change of keys that are on disk already, and use each new one once the coordinator agrees."""
    line = device.connection
    if NEXT_KEY in line:
        old, new = public_half(line["key"]), public_half(line[NEXT_KEY])
        status = _ask(line, HAND_OVER, {"old": old, "new": new, "proof": device.keys.sign_hand_over(old, new)})
        if status != 200:
            raise _refusal_error(line["address"], status)
        rest = {name: value for name, value in line.items() if name not in (NEXT_KEY, "node")}
        device.keep_connection({**rest, "key": line[NEXT_KEY]})
    if NEXT_IDENTITY in line:
        _change_identity_key(device)


def _change_identity_key(device: Device) -> None:
    line = device.connection
    identity = Identity(bytes.fromhex(line[NEXT_IDENTITY]), device.identity)
    status = _ask(line, NEW_IDENTITY_KEY, {"notice": device.keys.sign_change(identity).encode()})
    rest = {name: value for name, value in line.items() if name != NEXT_IDENTITY}
    if status == 200 or _is_noted(device, identity):
        device.keys.adopt(identity, rest)
        return
    device.keep_connection(rest)  # it was not taken: the device keeps the key that it has
    raise _refusal_error(line["address"], status)


def _is_noted(device: Device, identity: Identity) -> bool:
    """Say whether a change was made before its refusal, by an answer that was lost: without the key, all is lost."""
    line, log = device.connection, bytes.fromhex(device.federation_id)
    try:
        shown = fetch_notices(line["address"], line["roots"].encode() or None, device.federation_id)
        return shown is not None and shown.member_keys(log).key_of(identity.public) == identity.key
    except (ForgedError, MessageError):
        return False


def _ask(line: Mapping[str, str], route: str, asked: Mapping[str, bytes]) -> int:
    """Ask for one change, and return the status of the answer; no answer is a FieldError."""
    address = line["address"]
    body = {name: base64.b64encode(content).decode() for name, content in asked.items()}
    try:
        with CoordinatorRequests(address, line["roots"]) as requests:
            status = requests.post(route, body).status
    except NoAnswerError as error:
        raise _no_answer_error(address, f": {error.why}") from None
    if status in (429, 503) or status >= 500:
        raise _no_answer_error(address, f" (HTTP {status})")
    return status


def _no_answer_error(address: str, why: str) -> FieldError:
    return FieldError(
        f"{address} gave no answer{why}.",
        "It is unknown which key the coordinator has. Run again, until it answers: tacit device new-key.",
    )


def _refusal_error(address: str, status: int) -> FieldError:
    if status == 404:
        return FieldError(f"{address} has an older version of Tacit.", "The old key stays in use. Ask the operator.")
    return FieldError(f"{address} refused the new key (HTTP {status}).", "The old key stays in use. Ask the operator.")
