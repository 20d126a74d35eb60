"""A new key for the line to a coordinator: the device's identity signs that it takes the place of the old one.

The new key is on disk before the coordinator is asked, and the old one until it has agreed: after a crash at any point
the same change is asked for again, and a coordinator that has made it already says yes. A device that takes part asks
by itself once its old key is refused.
"""

from __future__ import annotations

import base64
import ssl

import httpx

from tacit.errors import FieldError
from tacit.field.device import Device
from tacit.field.device.device_file import NEXT_KEY
from tacit.field.invitations import SECONDS, draw_key, public_half

HAND_OVER = "/v1/tacit/hand-over"


def change_key(device: Device) -> None:
    """Ask the coordinator to know this device by a new key, and use that from now on."""
    line = device.connection
    if not line:
        raise FieldError("This device has no coordinator.", "Join a federation with an invitation: tacit device join.")
    device.participation.take_lock()  # the connection of a program that takes part would end
    if NEXT_KEY not in line:
        device.keep_connection({**line, NEXT_KEY: draw_key()})
    finish_change(device)


def finish_change(device: Device) -> None:
    """Ask for a change of the key that is on disk already, and use the new key once the coordinator agrees."""
    line = device.connection
    old, new = public_half(line["key"]), public_half(line[NEXT_KEY])
    keys = {"old": old, "new": new, "proof": device.sign_hand_over(old, new)}
    address = line["address"]
    try:
        context = ssl.create_default_context(cadata=line["roots"] or None)
        asked = {name: base64.b64encode(key).decode() for name, key in keys.items()}
        status = httpx.post(f"https://{address}{HAND_OVER}", json=asked, verify=context, timeout=SECONDS).status_code
    except httpx.HTTPError as error:
        raise FieldError(
            f"{address} gave no answer: {error}.",
            "It is unknown which key the coordinator has. Run again, until it answers: tacit device new-key.",
        ) from None
    if status == 404:
        raise FieldError(f"{address} has an older version of Tacit.", "The old key stays in use. Ask the operator.")
    if status != 200:
        raise FieldError(
            f"{address} refused the new key (HTTP {status}).", "The old key stays in use. Ask the operator."
        )
    rest = {name: value for name, value in line.items() if name not in (NEXT_KEY, "node")}
    device.keep_connection({**rest, "key": line[NEXT_KEY]})
