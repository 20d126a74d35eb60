"""FPL: federated pair-wise learning (Anelli et al., SAC 2021 and JIIS 2022; Ferrara's thesis, chapter 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from tacit.errors import ConfigError, MethodError
from tacit.kernels.fpl import (
    count_sent,
    draw_pairs,
    rows_of_pairs,
    settle,
    sum_of_pairs,
)
from tacit.kernels.fpl_clipped import TOGETHER, sum_of_clipped_pairs
from tacit.kernels.fpl_rounds import rounds_of_all_clients, rounds_of_one_client, rounds_of_one_triple
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.llvm.triples import empty_rows, pad_rows, unpad_rows, zero_rows
from tacit.kernels.membership import OwnedItems, owned_items
from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.draft import NARROW
from tacit.privacy.update_sink import UpdateSink, row_bytes
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import PlannedRows, Release, Ring, Total, UpdatePlan

PRESETS: dict[str, tuple[int, int]] = {"sFPL": (1, 1), "sFPL+": (1, 0), "pFPL": (0, 1), "pFPL+": (0, 0)}
MOST_DRAWN = 2**18  # triples of a round: so many are drawn at once where the kernel runs rounds of all clients
BITMAP_BYTES = 1024  # per client: up to 8,192 items a bit each is faster than searching the sorted history


class FPLConfig(Config):
    """Options of FPL. `preset: sFPL | sFPL+ | pFPL | pFPL+` sets clients_per_round and local_steps together."""

    factors: int = Field(20, gt=0, description="F: length of a latent vector")
    learning_rate: float = Field(0.02, gt=0, description="alpha: learning rate of devices and server")
    clients_per_round: int = Field(0, ge=0, description="|U-|: clients asked in a round; 0: all of them")
    local_steps: int = Field(
        0, ge=0, description="T: triples per client and round; 0: X+ / |U|, the mean number of positives"
    )
    epochs: int = Field(50, gt=0, description="epochs; an epoch has X+ triples over all clients")
    rounds: int = Field(0, ge=0, description="number of rounds, in place of epochs; 0: as epochs says")
    step: Literal["sequential", "batch"] = Field(
        "sequential", description="p is updated after every triple, or once a round with all gradients at the old p"
    )
    reg_user: float | None = Field(0.1, ge=0, description="lambda: L2 regularisation of p; none: learning_rate / 20")
    reg_positive: float | None = Field(
        0.0, ge=0, description="lambda: L2 regularisation of the positive item; none: learning_rate / 20"
    )
    reg_negative: float | None = Field(
        0.0, ge=0, description="lambda: L2 regularisation of the negative item; none: learning_rate / 200"
    )
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial p, q and b")
    pi: float | str | None = Field(
        None,
        description="shorthand for the privacy stage {name: disclose, pi: ...}: probability that a positive leaves",
    )

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "preset" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "preset"}
        preset = str(given["preset"])
        if preset not in PRESETS:
            raise ConfigError(f"There is no preset '{preset}' of FPL.", f"Known: {', '.join(PRESETS)}.")
        if {"clients_per_round", "local_steps"} & rest.keys():
            raise ConfigError("A preset of FPL sets clients_per_round and local_steps.", "Give either, not both.")
        clients, steps = PRESETS[preset]
        return {**rest, "clients_per_round": clients, "local_steps": steps}

    @field_validator("pi")
    @classmethod
    def _a_probability(cls, pi: float | str | None) -> float | str | None:
        if isinstance(pi, float) and not 0 <= pi <= 1:
            raise ValueError("pi is a probability, from 0 to 1")
        return pi

    @property
    def regs(self) -> Floats:
        """lambda of client, positive and negative item."""
        rate = self.learning_rate
        usual = ((self.reg_user, rate / 20), (self.reg_positive, rate / 20), (self.reg_negative, rate / 200))
        return np.array([default if given is None else given for given, default in usual], np.float32)


@register("fpl", FPLConfig)
class FPL(Federated):
    """Federated pair-wise learning: BPR on devices; negatives always leave, positives with probability pi.

    p moves after each triple (or once, `step: batch`), item rows stay as received, updates are summed, not averaged.
    """

    spec = FederatedSpec(
        item_tables=("items",),
        downloads=("items",),
        constants=("local_steps",),
        private={"p": "float32"},
        rows_repeat=True,  # two rows for every triple
        item_rows="pairs",
        schedule_options=("clients_per_round", "epochs", "rounds"),
    )

    def __init__(self, config: FPLConfig) -> None:
        self.config = config

    def schedule(self, clients: Clients) -> Schedule:
        """rpe = X+ / (|U-| T) rounds make an epoch."""
        c = self.config
        asked = c.clients_per_round or len(clients)
        if asked > len(clients) > 1:
            raise MethodError(
                f"fpl asks {asked} clients per round, but there are {len(clients)}.",
                "Lower method.clients_per_round, or set it to 0 for all.",
            )
        asked = min(asked, len(clients))  # someone who learns alone is asked alone
        per_epoch = max(1, round(len(clients.items) / (asked * self._local_steps(clients))))
        if not c.rounds:
            return Schedule(c.epochs, per_epoch, asked)
        return Schedule(-(-c.rounds // per_epoch), per_epoch, asked, most_rounds=c.rounds)

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """Two for every triple."""
        return 2 * int(shared["local_steps"])

    def most_rows(self, shared: Mapping[str, Array]) -> dict[str, int]:
        """Two for every triple."""
        return {"items": self.rows_per_client(shared)}

    def _local_steps(self, clients: Clients) -> int:
        return self.config.local_steps or max(1, len(clients.items) // len(clients))

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw p, q and b; a client's row ends with the 1 that the item's bias is multiplied by."""
        _check_histories(clients)
        c = self.config
        users = key.child("people").normal(clients.ids, c.factors + 1, c.init_scale)
        users[:, -1] = 1.0
        items = key.child("items").normal(np.arange(catalog.n_items), c.factors + 1, c.init_scale)
        steps = np.array(self._local_steps(clients))
        return Model({"items": items, "local_steps": steps}, {"p": users})

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """Draw triples: a row for each positive, then one for each negative."""
        steps = int(model.shared["local_steps"])
        pairs = np.empty((2, len(clients), steps), np.uint32)
        has = clients.derive_once("taken", _owned_items)
        draw_pairs(key.word, clients.ids, clients.ptr, clients.items, has, clients.n_items, pairs[0], pairs[1])
        ptr = np.arange(0, (len(clients) + 1) * steps, steps)
        drawn = (PlannedRows("items", ptr, rows.ravel().view(np.int32), n == 0) for n, rows in enumerate(pairs))
        return UpdatePlan(clients.ids, tuple(drawn), pairs)

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Take the local steps; write two rows for each triple, or add all of them up at once."""
        (positives, negatives), table = plan.work, pad_rows(model.shared["items"])
        total = sink.direct(clips=table.shape[1] <= NARROW)
        if total is not None:
            return self._add(model, table, plan, sink, total)
        users, moved = self._local_rows(model.private["p"])
        n_steps, width = positives.shape[1], table.shape[1]
        room = empty_rows(0, width)
        for block in sink.blocks(2 * n_steps * width * 4):
            n_rows = (block.stop - block.start) * n_steps
            room = room if len(room) >= 2 * n_rows else empty_rows(2 * n_rows, width)  # of the last block: it is done
            rows = room[: 2 * n_rows]
            arrays = rows_of(users[block]), rows_of(moved[block]), rows_of(table)
            drawn = positives[block], negatives[block]
            rows_of_pairs(*arrays, *drawn, rows_of(rows), sink.ring.scale, self._rate, self.config.regs)
            sink.put(0, rows[:n_rows])
            sink.put(1, rows[n_rows:])
        return {"p": unpad_rows(moved, model.shared["items"].shape[1])}

    @property
    def _rate(self) -> np.float32:
        return np.float32(self.config.learning_rate)

    def _local_rows(self, p: Floats) -> tuple[Floats, Floats]:
        """Return, padded, the vectors gradients are taken at and those that move: one array if steps are sequential."""
        moved = pad_rows(p)
        return (moved, moved) if self.config.step == "sequential" else (moved.copy(), moved)

    def _add(
        self, model: Model, table: Floats, plan: UpdatePlan, sink: UpdateSink, total: Total
    ) -> Mapping[str, Array]:
        """Add up a cohort's rows: the parts that differ by client triple by triple, the rest by counts."""
        regs, scale, width = self.config.regs, sink.ring.scale, model.shared["items"].shape[1]
        n_items, (positives, negatives) = len(table), plan.work
        kept = plan.parts[0].kept
        sent = np.ones(positives.shape, np.uint8) if kept is None else kept.reshape(positives.shape)
        targets, counts = np.empty_like(positives), np.zeros((2, n_items + 1), np.int32)
        count_sent(positives, negatives, sent, targets, counts)
        most = int((counts[0, :-1] + counts[1, :-1]).max())
        if sink.limits.smallest < np.inf:
            drawn = positives, negatives, targets
            sums = zero_rows(n_items + 1, table.shape[1]).view(np.int32)
            moved, longest = self._add_clipped(model.private["p"], table, drawn, sink, sums)
            if (min(longest, sink.limits.client) * (1 + 1e-6) * float(scale) + 1) * most >= 2**31:  # rounding included
                sums = np.zeros(sums.shape, np.int64)
                moved, _ = self._add_clipped(model.private["p"], table, drawn, sink, sums)
            # the rows hold their second terms already
            settle(table, sums, counts, total.sums["items"], total.counts["items"], scale, np.zeros_like(regs))
            return {"p": unpad_rows(moved, width)}
        peaks = np.zeros((1, table.shape[1]), np.float32)

        def summed(into: Array) -> Floats:
            users, moved = self._local_rows(model.private["p"])
            rows = rows_of(users), rows_of(moved), rows_of(table)
            cells = rows_of(into.view(np.float32))
            numbers = scale, self._rate, regs
            sum_of_pairs(*rows, positives, negatives, targets, into, cells, rows_of(peaks), *numbers)
            return moved

        # Whole numbers of 32 bits hold sums as long as the busiest item cannot overflow.
        sums = np.zeros((n_items + 1, table.shape[1]), np.int32)
        moved = summed(sums)
        largest = float(peaks.max())
        if largest * most >= 2**31:
            sums = np.zeros(sums.shape, np.int64)
            moved = summed(sums)
        shrunk = float(regs[1:].max() * max(table.max(), -table.min()) * scale)
        sink.check((largest + shrunk) / float(scale))
        settle(table, sums, counts, total.sums["items"], total.counts["items"], scale, regs)
        return {"p": unpad_rows(moved, width)}

    def _add_clipped(
        self, p: Floats, table: Floats, drawn: tuple[Array, Array, Array], sink: UpdateSink, sums: Array
    ) -> tuple[Floats, float]:
        """Add clipped rows to `sums` [n_items + 1, D]; return the vectors that moved, and how long a row can be."""
        users, moved = self._local_rows(p)
        room, squares = empty_rows(2 * TOGETHER * drawn[0].shape[1], table.shape[1]), np.empty(len(p))
        arrays = rows_of(users), rows_of(moved), rows_of(table), *drawn, rows_of(room), sums
        numbers = sink.ring.scale, self._rate, self.config.regs, np.array(sink.limits[:2]), sink.limits.in_sum
        longest = sum_of_clipped_pairs(*arrays, rows_of(sums.view(np.float32)), *numbers, squares)
        sink.check(sink.limits.smallest if np.isfinite(squares).all() else np.nan)
        return moved, float(np.sqrt(longest))

    def run_rounds(
        self, model: Model, clients: Clients, ring: Ring, disclosure: Disclosure | None, key: Key, rounds: range
    ) -> tuple[Release, Array] | None:
        """Run rounds of one client each, or of all clients, without leaving the kernel."""
        shared, private = model.shared, model.private
        config, width = self.config, shared["items"].shape[1]
        n_asked, steps = self.schedule(clients).clients_per_round, int(shared["local_steps"])
        if n_asked > 1 and (len(rounds) == 1 or steps > 1 or n_asked > MOST_DRAWN):
            return None  # beside so many triples the rest of a round costs little
        words = np.array([key.child(name).word for name in ("choose", "learn", "seal")])
        has = clients.derive_once("taken", _owned_items)
        if disclosure is None:
            coins = np.ones(len(clients)), np.zeros(len(shared["items"]), bool), False
        else:
            coins = disclosure.pi[clients.ids], disclosure.is_secret, disclosure.per_item
        draws = rounds.start, len(rounds), words, clients.ids, clients.ptr, clients.items, has, clients.n_items
        room = _Room.of(model, len(clients))
        if n_asked == 1 and steps == 1 and config.step == "sequential":
            tables = rows_of(room.p), rows_of(room.table)
            numbers = ring.scale, self._rate, config.regs
            rounds_of_one_triple(draws, tables, numbers, coins, room.sent, room.terms)
            largest_row = float(room.terms["row"].max())
        else:
            most = self._run_with_sums(room, draws, coins, ring, n_asked, steps)
            if not float(room.terms["row"].max()) * most < 2**31:
                return None  # the busiest item may have overflowed: one by one, rounds have wider sums
            ring.check(room.tops["row"])
            # a row is its first term and a small second one; both ends of a pass bound the latter well enough
            largest_item = max(np.abs(room.table).max(), np.abs(shared["items"]).max())
            largest_row = float(room.terms["row"].max()) + float(config.regs[1:].max() * largest_item * ring.scale)
        ring.fits(largest_row / float(ring.scale))
        shared["items"][:] = unpad_rows(room.table, width)
        private["p"][:] = unpad_rows(room.p, width)
        counted = room.sent.astype(np.int64)
        release = Release(counted[:, 0], counted[:, 1], counted.sum(axis=1) * row_bytes(width, ring))
        return release, release.negatives // steps  # every round sends all its negatives

    def _run_with_sums(
        self, room: _Room, draws: tuple[Any, ...], coins: tuple[Any, ...], ring: Ring, n_asked: int, steps: int
    ) -> int:
        """Run rounds that add up rows in 32 bits; say how often an item was sent in one at most."""
        n_items, width = room.table.shape
        totals = zero_rows(n_items + 1, width).view(np.int32)
        users, numbers = rows_of(room.p), (ring.scale, self._rate, self.config.regs)
        frozen = users if self.config.step == "sequential" else rows_of(pad_rows(room.p))
        tables = users, frozen, rows_of(room.table), totals
        run: Any = rounds_of_one_client
        more: Any = steps
        if n_asked > 1:
            run, more = rounds_of_all_clients, rows_of(totals.view(np.float32))
        return int(run(draws, tables, more, numbers, coins, room.sent, room.terms, room.tops))

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Add alpha times the sum, with no averaging."""
        moved = shared["items"] + self._rate * ring.decode(total.sums["items"])
        return {**shared, "items": moved}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return [p, 1] . [q, b]."""
        scores: Floats = private["p"] @ shared["items"].T
        return scores

    def popularity(self, shared: Mapping[str, Array]) -> Floats:
        """Return exp(b): BPR fits the odds of i before j to exp(b_i - b_j), so b is the logarithm of popularity."""
        found: Floats = np.exp(shared["items"][:, -1])
        return found

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history whose vectors are most aligned with the item's."""
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(shared["items"][:, :-1], history, item))


@dataclass(frozen=True)
class _Room:
    """What rounds in a kernel change: copies of the tables, padded, what was sent, and the largest numbers of sums."""

    table: Floats
    p: Floats
    sent: Array  # [C, 2]: rows of positives and of negatives
    terms: Array  # [1] row: the largest terms
    tops: Array  # [1] row: the largest sums

    @classmethod
    def of(cls, model: Model, n_clients: int) -> _Room:
        table, p = pad_rows(model.shared["items"]), pad_rows(model.private["p"])
        terms, tops = (rows_of(np.zeros((1, table.shape[1]), np.float32)) for _ in range(2))
        return cls(table, p, np.zeros((n_clients, 2), np.uint32), terms, tops)


def _owned_items(clients: Clients) -> OwnedItems:
    return owned_items(clients, most_bytes=BITMAP_BYTES * len(clients))


def _check_histories(clients: Clients) -> None:
    """Refuse clients from whom no triple can be drawn."""
    if not len(clients) or clients.sizes.min() == 0:
        raise MethodError("fpl needs at least one item in every history.", "Set data.min_per_user=1 or higher.")
    kept_out = clients.derive_once("taken", _owned_items)
    owner = np.repeat(np.arange(len(clients)), np.diff(kept_out.ptr))
    repeats = np.zeros(len(kept_out.items), bool)
    repeats[1:] = (kept_out.items[1:] == kept_out.items[:-1]) & (owner[1:] == owner[:-1])
    if int(np.bincount(owner[~repeats], minlength=len(clients)).max()) >= clients.n_items:
        raise MethodError(
            "fpl cannot draw a negative for a client whose history has every item.", "Remove such users from the data."
        )
