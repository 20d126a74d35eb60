"""Amendments: what may change in a running federation, as signed differences that each follow from the one before.

    amendment   signature (64) · what changed, packed: its number, the catalogue's digest after it, and one change

A change is of the catalogue (items join, are renamed or retired; their places stay), a return to an earlier model, or
another method. The latter changes what leaves a device, and holds there only once its user has agreed. The terms after
an amendment name those before by their digest: a chain back to what a device agreed to. Where the terms name an
authority, its signature must hold; otherwise the connection to the coordinator authenticates it, as all messages.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import ConfigError, DataError, ForgedError, WireError
from tacit.protocols.secure_aggregation.identity import SIGNATURE_BYTES, Identity, verify
from tacit.reasons import ReasonCode
from tacit.types import Catalog
from tacit.wire.catalogue import canonical, catalog_bytes, catalog_from, digest_of
from tacit.wire.envelope import AMENDMENT, MOST_BYTES, UPGRADE, seal_message, unseal_message
from tacit.wire.federation import Federation
from tacit.wire.messages import inflate

PATH = "/v1/tacit/amendments"  # where a coordinator gives out a chain, by the digest of the terms it begins with
LISTS = ("items", "titles", "coordinates", "vectors", "popularity")


@dataclass(frozen=True)
class AmendedFederation:
    """A federation after an amendment, and what it was for."""

    federation: Federation
    catalog: Catalog
    rolled_back_to: int | None = None  # the round whose model is in force again
    from_round: int | None = None  # the first round after that
    replaces_method: bool = False  # another method, or other options of it: users must agree


def write_amendment(
    federation: Federation,
    before: Catalog,
    after: Catalog,
    authority: Identity | None,
    rollback: tuple[int, int] | None = None,
    method: tuple[str, Mapping[str, Any]] | None = None,
) -> tuple[bytes, AmendedFederation]:
    """Write what follows upon some terms.

    `rollback` is (round whose model is in force again, first round after it); `method` is another one and its options.
    """
    old, new = (json.loads(catalog_bytes(catalog)) for catalog in (before, after))
    change: dict[str, Any] = {"catalogue": find_changes(old, new)} if old != new else {}
    if rollback is not None:
        change["rollback"] = {"to": rollback[0], "from": rollback[1]}
    if method is not None:
        change["method"] = {"name": method[0], "options": dict(method[1])}
    amended = federation.amend(digest_of(catalog_bytes(after)), *(method or ()))
    body = canonical({"catalog": amended.catalog, "change": change})
    signature = bytes(SIGNATURE_BYTES) if authority is None else authority.sign(_statement(amended, body))
    content = seal_message(AMENDMENT, federation.digest, amended.number, signature + zlib.compress(body, 9))
    to, since = rollback or (None, None)
    return content, AmendedFederation(amended, after, to, since, method is not None)


def read_amendment(content: bytes, federation: Federation, catalog: Catalog) -> AmendedFederation:
    """Return a federation as an amendment leaves it; anything that does not follow from these terms is refused."""
    _, digest, number, packed = unseal_message(content, (AMENDMENT,))
    if digest != federation.digest or number != federation.number + 1:
        raise WireError.because(ReasonCode.BROKEN_CHAIN, number=number, version=federation.number)
    body = inflate(packed[SIGNATURE_BYTES:])
    try:
        about = json.loads(body)
        change = about["change"]
        method = change.get("method")
        replaced = () if method is None else (_text(method["name"]), method["options"])
        amended = federation.amend(about["catalog"], *replaced)
        after = catalog
        if "catalogue" in change:
            old = json.loads(catalog_bytes(catalog))
            after = catalog_from(canonical(apply_changes(old, change["catalogue"])))
            if method is None and _width(after) != _width(catalog):
                raise ValueError("its vectors have another width, so that no model would fit")
        back = change.get("rollback")
        rollback = (None, None) if back is None else (_round(back["to"]), _round(back["from"]))
        if canonical(about) != body or digest_of(catalog_bytes(after)) != amended.catalog:
            raise ValueError("the catalogue after it has another digest")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, DataError) as error:
        raise WireError(
            f"An amendment of the federation cannot be applied: {str(error)[:200]}.", "Nothing was changed."
        ) from None
    if federation.authority is not None:
        try:
            verify(bytes.fromhex(federation.authority), _statement(amended, body), packed[:SIGNATURE_BYTES], 0)
        except ForgedError:
            raise WireError.because(ReasonCode.UNSIGNED_AMENDMENT, number=number) from None
    if method is not None:
        try:
            amended.check_method()
        except ConfigError as error:
            raise WireError(f"This program cannot learn as the federation wants to: {error.message}", UPGRADE) from None
    return AmendedFederation(amended, after, rollback[0], rollback[1], method is not None)


def _width(catalog: Catalog) -> int:
    return 0 if catalog.vectors is None else catalog.vectors.shape[1]


def write_chain(amendments: Sequence[bytes]) -> bytes:
    """Write amendments behind each other."""
    return b"".join(struct.pack("<I", len(content)) + content for content in amendments)


def read_chain(content: bytes) -> list[bytes]:
    """Read what `write_chain` wrote."""
    found, at = [], 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content.ljust(at + 4, b"\0"), at)
        if size > MOST_BYTES or at + 4 + size > len(content):
            raise WireError("A chain of amendments ends early.", "Nothing was changed; it will be fetched again.")
        found.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def find_changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return how one catalogue, as written, becomes another that begins with the same items.

    >>> find_changes({"items": ["a"], "titles": ["A"]}, {"items": ["a", "b"], "titles": ["Ah", "B"]})
    {'items': {'add': ['b']}, 'titles': {'add': ['B'], 'set': [[0, 'Ah']]}}
    """
    changes: dict[str, Any] = {}
    for name in sorted(old.keys() | new.keys()):
        was, now = _rows(old, name), _rows(new, name)
        if was == now:
            continue
        if name in (*LISTS, "categories") and was is not None and now is not None:
            patch = {"add": now[len(was) :], "set": [[at, now[at]] for at in range(len(was)) if now[at] != was[at]]}
            changes[name] = {key: value for key, value in patch.items() if value}
        else:
            changes[name] = {"all": new.get(name)}
    if _names(old) != _names(new) and "categories" in old and "categories" in new:
        changes.setdefault("categories", {})["names"] = _names(new)[len(_names(old)) :]
    return changes


def apply_changes(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the catalogue, as written, after some changes."""
    new = dict(old)
    for name, change in changes.items():
        if "all" in change:
            new[name] = change["all"]
            if new[name] is None:
                del new[name]
            continue
        rows = list(_rows(old, name) or [])
        for at, value in change.get("set", []):
            if not 0 <= at < len(rows) or name == "items":
                raise ValueError("it changes an item that does not exist, or its id")
            rows[at] = value
        rows += change.get("add", [])
        if name == "categories":
            ptr = [0]
            for row in rows:
                ptr.append(ptr[-1] + len(row))
            names = [*_names(old), *change.get("names", [])]
            new[name] = {"ptr": ptr, "ids": [label for row in rows for label in row], "names": names}
        else:
            new[name] = rows
    return new


def _rows(about: dict[str, Any], name: str) -> Any:
    """Return what a catalogue holds under a name, of categories the numbers of each item's."""
    found = about.get(name)
    if name != "categories" or found is None:
        return found
    return [found["ids"][start:stop] for start, stop in zip(found["ptr"][:-1], found["ptr"][1:], strict=True)]


def _names(about: dict[str, Any]) -> list[str]:
    return list(about["categories"]["names"]) if "categories" in about else []


def _text(found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise ValueError("it names no method")
    return found


def _round(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 2**32:
        raise ValueError("its rounds are no numbers of rounds")
    return number


def _statement(amended: Federation, body: bytes) -> bytes:
    return b"tacit amendment" + amended.digest + hashlib.sha256(body).digest()
