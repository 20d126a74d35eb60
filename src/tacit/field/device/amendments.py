"""What a device does with amendments of its federation: it follows the chain, and everything it keeps comes along.

History and settings name items and categories, and stay as they are. The last model and the private part grow as the
method says. Items that leave a category whose rows the user never shares are not shared either. What changed is kept,
so that the user can see it; a return to an earlier model is one of these. At another method the device stops: it waits
for its user's yes (`proposals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit.errors import ConfigError, WireError
from tacit.field.device.membership import Membership
from tacit.field.device.proposals import PLACE as PROPOSAL
from tacit.field.device.proposals import keep_proposal
from tacit.field.device.settings import Sharing
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Label
from tacit.wire.amendments import AmendedFederation, read_amendment, read_chain
from tacit.wire.federation import Federation
from tacit.wire.messages import open_welcome, pack, read_request, unpack, write_request, write_welcome

PLACE = "amendments"
OF_METHOD = ("model", "private", "learnt", "known", "measured")  # means nothing to another method
KEPT = 50  # notes of what changed, for the user to read


@dataclass(frozen=True)
class AmendmentNote:
    """What one amendment changed, in counts, and when this device followed it."""

    number: int
    when: str
    added: int = 0
    renamed: int = 0
    retired: int = 0
    rolled_back_to: int | None = None
    method: str = ""  # another one, to which the user agreed

    def describe(self) -> str:
        """Return it as a sentence for a user."""
        if self.method:
            return f"You agreed to another way of learning together: {self.method}."
        if self.rolled_back_to is not None:
            return f"The operator went back to the model after round {self.rolled_back_to}; it is signed and counted."
        parts = [
            f"{n:,} {what}"
            for n, what in ((self.added, "new"), (self.renamed, "changed"), (self.retired, "retired"))
            if n
        ]
        return f"The catalogue has changed: {', '.join(parts) or 'nothing that you would see'}."


def follow(
    store: Store, member: Membership, chain: bytes, sharing: Sharing, now: str, agrees: bool = False
) -> tuple[list[AmendmentNote], Sharing]:
    """Bring what a file holds of a federation along a chain, inside a transaction; return what changed.

    The settings that come back keep to themselves what the user's own kept before. Unless the user `agrees`, it ends
    before another method, and the rest is kept as a proposal.
    """
    welcome = store.get("welcome")
    amendments = read_chain(chain)
    if welcome is None or not amendments:
        raise WireError.because(ReasonCode.UNKNOWN_VERSION, version=member.federation.number)
    federation, catalog = open_welcome(welcome)
    notes, is_replaced = [], False
    last = _last_terms(amendments, federation, catalog)
    agrees = agrees or last.learns_like(federation)  # a method that came and went changes nothing for the user
    for at, content in enumerate(amendments):
        amended = read_amendment(content, federation, catalog)
        if amended.replaces_method and not agrees:
            keep_proposal(store, amendments[at:], last.digest)
            break
        is_replaced = is_replaced or amended.replaces_method
        notes.append(_note(catalog, amended, now))
        sharing = _keep_forbidden(sharing, catalog, amended.catalog)
        federation, catalog = amended.federation, amended.catalog
    else:
        store.drop(PROPOSAL)  # it followed upon terms that went another way, or holds now
    after = Membership(store, federation, catalog, member.address)
    if is_replaced:
        for place in OF_METHOD:
            store.drop(place)
    method, first, later = federation.built, member.first, after.first
    for place in ("private", "learnt"):
        stored = store.get(place)
        if stored is not None:
            store.put(place, pack(method.grow_private(unpack(stored), first, later)))
    model = store.get("model")
    if model is not None:
        request = read_request(member.federation, model)
        grown = method.grow(request.shared, first, later)
        store.put("model", write_request(federation, replace(request, shared=grown, learn=False)))
    store.put("welcome", write_welcome(federation, catalog))
    store.put_json(PLACE, [*(store.get_json(PLACE) or []), *map(asdict, notes)][-KEPT:])
    return notes, sharing


def _last_terms(amendments: list[bytes], federation: Federation, catalog: Catalog) -> Federation:
    """Return the terms at the end of a chain; another method is refused here if no device could agree to it."""
    before = federation
    for content in amendments:
        amended = read_amendment(content, federation, catalog)
        federation, catalog = amended.federation, amended.catalog
    if not federation.learns_like(before):
        try:
            federation.check_terms(catalog)
        except ConfigError as error:
            raise WireError(
                Sentence("The operator proposes what cannot be: {why}", why=error.message), "Ask the operator."
            ) from None
    return federation


def read_notes(store: Store) -> list[AmendmentNote]:
    """Return what changed while this device was a member, oldest first."""
    found: list[Mapping[str, Any]] = store.get_json(PLACE) or []
    return [AmendmentNote(**note) for note in found]


def _note(before: Catalog, amended: AmendedFederation, now: str) -> AmendmentNote:
    after, was, back = amended.catalog, _retired_items(before), amended.rolled_back_to
    renamed = sum(before.title(item) != after.title(item) for item in range(before.n_items))
    added, retired = after.n_items - before.n_items, len(_retired_items(after) - was)
    method = amended.federation.method if amended.replaces_method else ""
    return AmendmentNote(amended.federation.number, now, added, renamed, retired, back, method)


def _retired_items(catalog: Catalog) -> set[int]:
    return set() if catalog.retired is None else set(catalog.retired.tolist())


def _keep_forbidden(sharing: Sharing, before: Catalog, after: Catalog) -> Sharing:
    """Add items that leave a forbidden category to those that are never shared."""
    labels, later, never = before.categories, after.categories, {*sharing.never_categories}
    if labels is None or not never:
        return sharing
    left: list[Label] = []
    for item in range(before.n_items):
        were = never & {*labels.of(item)}
        if were and (later is None or not never & {*later.of(item)}):
            left.append(before.item_ids[item])
    gone = never - (set() if later is None else {*later.names})
    items = tuple(dict.fromkeys([*sharing.never_items, *left]))
    kept = tuple(name for name in sharing.never_categories if name not in gone)
    return sharing.model_copy(update={"never_items": items, "never_categories": kept})
