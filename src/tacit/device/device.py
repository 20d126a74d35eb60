"""A device: one person's node. It learns as a cohort of one, shares what she allows, and notes it before it leaves.

A round, as the device sees it:

    learn     a request -> `device_round` -> message, private part, ledger entry and model: all on disk, or nothing
    release   her settings are read once more, the entry is marked, and only then are there bytes to send
    sent      or `not_sent`: what the transport says

What an answer made of her private part is kept when the next message says that it counted, and undone otherwise.
Each round is answered once: asked again, also after a crash, the device gives the very same bytes. A request for a
round gone by, or for the last round with another model, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit.device.history import History
from tacit.device.ledger import Ledger, Spoken, Upcoming
from tacit.device.membership import Answer, Membership
from tacit.device.settings import Sharing, find_item
from tacit.device.store import Store
from tacit.device.vault import Cost
from tacit.errors import ConsentError, DeviceError, DivergedError, MethodError, WireError
from tacit.protocols.federated import device_round
from tacit.random import Key
from tacit.runtimes.learning import one_blas_thread
from tacit.runtimes.recommender import Recommendation, Recommender
from tacit.runtimes.wire import Request, digest_in, write_update
from tacit.types import Array, Catalog, Clients, Label, Model, Vocabulary

Clock = Callable[[], datetime]
SEED_BITS = 256


def system_clock() -> datetime:
    """Return the time of the machine, UTC."""
    return datetime.now(UTC)


class Device:
    """One person's device, open. `history`, `sharing` and `ledger` are hers to read at any time."""

    def __init__(self, store: Store, clock: Clock = system_clock) -> None:
        self._store, self._clock = store, clock
        self.history, self.ledger = History(store), Ledger(store)
        self._member = Membership.of(store)

    @classmethod
    def create(
        cls,
        path: Path,
        passphrase: str,
        *,
        cost: Cost | None = None,
        clock: Clock = system_clock,
        seed: int | None = None,
        lane: int = 0,
    ) -> Device:
        """Make a new device. Its root key comes from the system's entropy.

        A `seed` and a `lane` (the person's number) are for tests that compare with a simulation, and for nothing else:
        whoever knows the seed can tell what was positive in each message.
        """
        store = Store.create(path, passphrase, cost or Cost())
        with store.transaction():
            store.put_json("root", {"seed": secrets.randbits(SEED_BITS) if seed is None else seed, "lane": lane})
            store.put("sharing", Sharing().model_dump_json().encode())
        return cls(store, clock)

    @classmethod
    def open(cls, path: Path, passphrase: str, clock: Clock = system_clock) -> Device:
        """Open a device with its passphrase."""
        return cls(Store.open(path, passphrase), clock)

    def close(self) -> None:
        """Let the file go."""
        self._store.close()

    def reread(self) -> None:
        """Notice that another program joined or left a federation with this file."""
        welcome, member = self._store.get("welcome"), self._member
        joined = None if welcome is None else digest_in(welcome)
        if joined != (None if member is None else member.federation.digest):
            self._member = Membership.of(self._store)

    @property
    def moment(self) -> tuple[int, int]:
        """Numbers that change whenever anything on this device does: what was read before them may be kept."""
        return self._store.moment()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    # --- what she decides ---------------------------------------------------------------------------------------------

    @property
    def sharing(self) -> Sharing:
        """What may leave, as it is on disk now."""
        stored = self._store.get("sharing")
        if stored is None:
            raise DeviceError("This device's file holds no settings.", "Restore a copy: tacit device import.")
        return Sharing.model_validate_json(stored)

    def share(self, sharing: Sharing) -> None:
        """Decide what may leave, from the next message on. Every name must exist."""
        if self._member is not None:
            sharing.stage(self._root[1], self._member.catalog)
        with self._store.transaction():
            self._store.put("sharing", sharing.model_dump_json().encode())

    def pause(self) -> None:
        """Let nothing leave until `resume`."""
        self.share(self.sharing.model_copy(update={"paused": True}))

    def resume(self) -> None:
        """Let messages leave again."""
        self.share(self.sharing.model_copy(update={"paused": False}))

    def hide(self, named: Label) -> None:
        """Never recommend an item again."""
        item = self.catalog.item_ids[find_item(named, self.catalog)]
        with self._store.transaction():
            self._store.put_json("hidden", sorted({*self.hidden, item}, key=str))

    def unhide(self, item: Label) -> None:
        """Let an item be recommended again."""
        with self._store.transaction():
            self._store.put_json("hidden", [hidden for hidden in self.hidden if hidden != item])

    @property
    def hidden(self) -> list[Label]:
        """Items that she does not want to see."""
        found: list[Label] = self._store.get_json("hidden") or []
        return found

    # --- whom she belongs to ------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership | None:
        """The federation that she belongs to, if any."""
        return self._member

    @property
    def catalog(self) -> Catalog:
        """The catalogue of her federation."""
        return self._joined.catalog

    @property
    def _joined(self) -> Membership:
        if self._member is None:
            raise ConsentError("This device belongs to no federation.", "Join one: tacit device join INVITATION.")
        return self._member

    def join(self, welcome: bytes, address: str = "") -> Membership:
        """Become a member of a federation; nothing leaves by that."""
        self._member = Membership.join(self._store, welcome, address)
        return self._member

    def keep_line(self, line: Mapping[str, str]) -> None:
        """Keep what the carrier needs to reach the coordinator: an address, certificates, this device's key there."""
        with self._store.transaction():
            self._store.put_json("line", dict(line))

    @property
    def line(self) -> dict[str, str]:
        """What the carrier needs to reach the coordinator; empty without one."""
        found: dict[str, str] = self._store.get_json("line") or {}
        return found

    def leave(self) -> None:
        """Leave the federation at once. Her history, her settings and the ledger stay; what was sent stays sent."""
        Membership.leave(self._store)
        self._member = None

    # --- a round ------------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> tuple[Key, int]:
        stored = self._store.get_json("root")
        return Key(stored["seed"]).child("learn"), stored["lane"]

    def receive(self, content: bytes) -> Request:
        """Keep a model that was sent here, to recommend from."""
        member = self._joined
        request, last = member.read(content), member.model()
        if last is not None and request.round < last.round:
            raise WireError(
                f"A newer model is here already: of round {last.round}, not {request.round}.",
                "Its sender repeats an old message. Nothing was changed.",
            )
        with self._store.transaction():
            self._refuse_if_left()
            member.settle(request.counted)
            member.keep_model(content)
        return request

    def learn(self, content: bytes) -> int:
        """Answer a request: learn, and put the message on disk with its entry in the ledger; return the entry's number.

        Nothing has left when this returns.
        """
        member, sharing = self._joined, self.sharing
        self._refuse_if_silent(sharing)
        request, digest = member.read(content), hashlib.sha256(content).hexdigest()
        if not request.learn:
            raise WireError("This model is to be kept, not to be answered.", "")
        last = member.answer()
        if last is not None and request.round <= last.round:
            if request.round == last.round and digest == last.request:
                return last.entry
            raise WireError(
                f"Round {request.round} was answered already, or is gone by: the last one was {last.round}.",
                "Its sender repeats an old message, or asks twice with different models. Nothing was sent.",
            )
        rows, answer, moved = self._made(request, sharing, last)
        with self._store.transaction():
            self._refuse_if_left()
            self._refuse_if_silent(self.sharing, sharing)
            entry = self.ledger.write(self._now(), member.to, request.round, rows, answer, masked=False)
            member.settle(request.counted)
            member.keep_learnt(moved)
            member.keep_model(content)
            member.keep_answer(Answer(entry, request.round, digest, answer))
        return entry

    def _made(
        self, request: Request, sharing: Sharing, last: Answer | None
    ) -> tuple[Spoken, bytes, Mapping[str, Array]]:
        """Learn from a model; return what the message speaks of, the message, and her part of the model after it."""
        (key, lane), member, federation = self._root, self._joined, self._joined.federation
        clients = self.history.clients(lane, member.catalog)
        if not len(clients.items):
            raise ConsentError("There is nothing to learn from: the history is empty.", "Add to it first.")
        counts = last is not None and last.round == request.counted
        before = (member.learnt() if counts else member.private()) or self._first_private(clients, key)
        stages = (sharing.stage(lane, member.catalog), *federation.stages)
        with one_blas_thread():
            message, moved = device_round(
                federation.built, stages, federation.ring, request.shared, before, clients, key, request.round
            )
        if len(message.withheld):
            raise DivergedError("What was learnt does not fit the ring; nothing is sent.", "The model has run away.")
        shapes = {name: request.shared[name].shape for name in federation.built.tables}
        return Spoken.of(message, shapes, member.catalog), write_update(federation, request.round, message), moved

    def upcoming(self) -> Upcoming | None:
        """Return what would leave if she were asked in the round after the last one she knows of; none without a model.

        Her draws and coins are fixed by her key and the round, so these are the very rows that leave if that round
        asks her before history or settings change. Nothing is kept, and nothing leaves.
        """
        member, sharing = self._joined, self.sharing
        model, answer = member.model(), member.answer()
        if model is None or not len(self.history):
            return None
        number = 1 + max(model.round, -1 if answer is None else answer.round)
        rows, content, _ = self._made(replace(model, round=number), sharing, answer)
        return Upcoming(number, member.to, rows, len(content))

    def release(self, entry: int) -> bytes:
        """Return the bytes of a message, to be sent now. From here on the ledger says that it may have left."""
        member = self._joined
        with self._store.transaction():
            self._refuse_if_left()
            self._refuse_if_silent(self.sharing)
            answer = member.answer()
            if answer is None or answer.entry != entry:
                raise DeviceError(f"Entry {entry} of the ledger is not the message to be sent.", "")
            self.ledger.mark(entry, "releasing", self._now())
        return answer.content

    def sent(self, entry: int) -> None:
        """Note that a message arrived."""
        with self._store.transaction():
            self.ledger.mark(entry, "sent", self._now())

    def not_sent(self, entry: int, why: str) -> None:
        """Note that a message did not arrive."""
        with self._store.transaction():
            self.ledger.mark(entry, "not sent", self._now(), why)

    def _first_private(self, clients: Clients, key: Key) -> dict[str, Array]:
        member = self._joined
        return dict(member.federation.built.init(clients, member.catalog, key.child("init")).private)

    def _refuse_if_silent(self, sharing: Sharing, before: Sharing | None = None) -> None:
        if sharing.paused:
            raise ConsentError("This device is paused: nothing leaves it.", "Resume it first: tacit device resume.")
        if before is not None and sharing != before:
            raise ConsentError("The settings changed while the message was made; it was not kept.", "Ask again.")

    def _refuse_if_left(self) -> None:
        welcome = self._store.get("welcome")
        if welcome is None or digest_in(welcome) != self._joined.federation.digest:
            raise ConsentError("This device has left its federation: nothing leaves it.", "")

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds")

    # --- what it is for -----------------------------------------------------------------------------------------------

    def recommend(self, n: int = 10) -> list[Recommendation]:
        """Return the best n items that she does not know yet, from what is on this device; nothing is sent."""
        member = self._joined
        last = member.model()
        if last is None:
            raise MethodError("No model has arrived yet.", "Let the device take part: tacit device run.")
        key, lane = self._root
        clients = self.history.clients(lane, member.catalog)
        if not len(clients.items):
            raise MethodError("The history is empty: there is nothing to recommend from.", "Add to it first.")
        private = member.learnt() or member.private() or self._first_private(clients, key)
        model = Model(last.shared, private)
        hidden = set(self.hidden)
        counter = Recommender(
            member.federation.method,
            member.federation.config,
            model,
            clients,
            member.catalog,
            Vocabulary(np.zeros(1, np.int64)),
        )
        return [found for found in counter.recommend(0, n + len(hidden)) if found.item not in hidden][:n]

    # --- her file -----------------------------------------------------------------------------------------------------

    def change_passphrase(self, passphrase: str, cost: Cost | None = None) -> None:
        """Open with another passphrase from now on. Copies made before still open with the old one."""
        self._store.change_passphrase(passphrase, cost or Cost())

    def export(self, path: Path) -> None:
        """Write an encrypted copy that opens with the same passphrase. Use one copy at a time."""
        self._store.copy_to(path)

    def readable(self) -> dict[str, Any]:
        """Return all that is hers, in the clear: history, settings, ledger."""
        member = self._member
        return {
            "history": [{"item": e.item, "when": e.when, "value": e.value} for e in self.history.list()],
            "sharing": self.sharing.model_dump(mode="json"),
            "hidden": self.hidden,
            "federation": None if member is None else member.federation.model_dump(mode="json"),
            "ledger": [release.as_json() for release in self.ledger.list()],
        }

    def export_readable(self, path: Path) -> None:
        """Write all that is hers in the clear, for her eyes."""
        try:
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                json.dump(self.readable(), file, ensure_ascii=False, indent=1)
        except FileExistsError:
            raise DeviceError(f"'{path}' exists already.", "Choose another name.") from None
        except OSError as error:
            raise DeviceError(f"'{path}' cannot be written: {error.strerror}.", "Choose another place.") from None

    @classmethod
    def import_copy(cls, copy: Path, path: Path, passphrase: str, clock: Clock = system_clock) -> Device:
        """Make a device from an exported copy; one that is already at `path` is never touched."""
        if path.exists():
            raise DeviceError(f"There is a device already: '{path}'.", "Erase it first, or choose another --file.")
        opened = Store.open(copy, passphrase)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            opened.copy_to(path)
        finally:
            opened.close()
        return cls.open(path, passphrase, clock)

    def erase(self) -> None:
        """Destroy everything on this device. What was sent before stays with whom it was sent to."""
        self._store.erase()
