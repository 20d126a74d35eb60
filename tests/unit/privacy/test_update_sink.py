"""The way out: messages and totals hold the same numbers, whoever does not fit is withheld, plans are kept to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DivergedError, MethodError
from tacit.privacy import update_sink
from tacit.privacy.clipping import Clipping
from tacit.privacy.update_sink import Limits, Stage, UpdateSink, row_bytes
from tacit.protocols.weighing import Weighing
from tacit.random import Key
from tacit.types import Floats, offsets
from tacit.updates import Message, PlannedRows, Release, Ring, Total, UpdatePlan

N_ROWS, RING, KEY = 9, Ring(), Key(1)
NUMBERS = [np.nan, np.inf, -np.inf, 1e30, 17.0]


@dataclass
class Put:
    """How the values of a part are put."""

    values: Floats  # [R, D], or [C, D] where rows are outer
    weights: Floats | None = None
    is_outer: bool = False
    by_row: bool = False


@dataclass
class World:
    """A plan with values for it."""

    plan: UpdatePlan
    puts: list[Put]
    shapes: dict[str, tuple[int, ...]]

    def finish(
        self, stages: Sequence[Stage], total: Total | None = None, ring: Ring = RING, blocks: bool = False
    ) -> tuple[Message | None, Release, np.ndarray]:
        sink = UpdateSink(self.plan, [(stage, KEY) for stage in stages], ring, self.shapes, total)
        for block in sink.blocks(2**20) if blocks else [slice(0, len(self.plan.clients))]:
            for number, (part, put) in enumerate(zip(self.plan.parts, self.puts, strict=True)):
                rows = slice(part.ptr[block.start], part.ptr[block.stop])
                if not put.is_outer:
                    sink.put(number, put.values[rows])
                elif put.weights is None:
                    sink.put_outer(number, put.values[block])
                elif put.by_row:
                    sink.put_outer(number, put.values[block], put.weights, by_row=True)
                else:
                    sink.put_outer(number, put.values[block], put.weights[rows])
        return sink.finish()


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some clients with parts of every form: ragged, narrow and wide, padded, outer, some rows taken away."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_clients = draw(st.integers(1, 6))
    width = draw(st.sampled_from([1, 3, 8, 130]))
    parts, puts, shapes = [], [], {"items": (N_ROWS, width), "layers": (1, 4)}
    for _ in range(draw(st.integers(1, 3))):
        sizes, ids = rng.integers(0, 5, n_clients), None
        if draw(st.integers(0, 4)):
            ids = rng.integers(0, N_ROWS, sizes.sum()).astype(np.int32)
        else:
            sizes = np.full(n_clients, N_ROWS)
        n = int(sizes.sum())
        sensitive = draw(st.sampled_from([True, False, None]))
        marks = rng.integers(0, 2, n).astype(bool) if sensitive is None else sensitive
        kept = rng.integers(0, 2, n).astype(np.uint8) if draw(st.booleans()) else None
        parts.append(PlannedRows("items", offsets(sizes), ids, marks, kept=kept))
        form = draw(st.sampled_from(["dense", "padded", "outer", "repeated", "by row"]))
        rows = n if form in ("dense", "padded") else n_clients
        values = rng.uniform(-2, 2, (rows, width)).astype(np.float32)
        for _ in range(draw(st.integers(0, 2))):
            if rows:
                values[rng.integers(rows), rng.integers(width)] = draw(st.sampled_from(NUMBERS))
        if form == "padded":
            values = np.insert(values, [width - 1] * 3, 0.0, axis=1)
        weights = rng.choice([0.0, 0.25, -1.0, 0.7], N_ROWS if form == "by row" else n).astype(np.float32)
        needs = form in ("outer", "by row")
        puts.append(
            Put(values, weights if needs else None, rows != n or form not in ("dense", "padded"), form == "by row")
        )
    parts.append(PlannedRows("layers", np.arange(n_clients + 1), np.zeros(n_clients, np.int32), False))
    puts.append(Put(rng.uniform(-2, 2, (n_clients, 4)).astype(np.float32)))
    return World(UpdatePlan(np.arange(n_clients) * 3, tuple(parts)), puts, shapes)


STAGES: dict[str, list[Stage]] = {
    "nothing": [],
    "rows": [Clipping(row=0.5)],
    "clients": [Clipping(person=2.0)],
    "weighing, then both": [Weighing(np.linspace(0.1, 3.0, 20, dtype=np.float32)), Clipping(row=0.5, person=1.0)],
    "clipping, then weighing": [Clipping(row=0.5), Weighing(np.linspace(0.1, 3.0, 20, dtype=np.float32))],
}


@pytest.mark.slow
@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("ring", [RING, Ring(bits=32, fraction=12)], ids=["64 bits", "32 bits"])
@given(world=worlds())
@settings(max_examples=40)
def test_a_total_is_the_sum_of_messages_and_of_blocks(stages: list[Stage], ring: Ring, world: World) -> None:
    message, release, is_fit = world.finish(stages, ring=ring)
    assert message is not None
    expected = Total.zero(world.shapes)
    expected.add(message)
    assert np.array_equal(message.clients, world.plan.clients[is_fit])
    assert np.array_equal(message.withheld, world.plan.clients[~is_fit])
    for blocks in (False, True):
        total = Total.zero(world.shapes)
        nothing, added, fit = world.finish(stages, total, ring, blocks)
        assert nothing is None
        assert np.array_equal(fit, is_fit)
        assert total.n_clients == is_fit.sum()
        for name in world.shapes:
            assert np.array_equal(total.sums[name], expected.sums[name])
            assert np.array_equal(total.counts[name], expected.counts[name])
        for one, other in zip(vars(release).values(), vars(added).values(), strict=True):
            assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
@given(world=worlds())
@settings(max_examples=40)
def test_a_message_holds_what_a_plain_loop_makes(stages: list[Stage], world: World) -> None:
    """In double precision, client by client; where a number is too large or none, the client is withheld."""
    message, release, is_fit = world.finish(stages)
    assert message is not None
    clients, plan = world.plan.clients, world.plan
    at = dict.fromkeys(world.shapes, 0)
    for c, client in enumerate(clients):
        rows: list[tuple[str, int, bool, np.ndarray]] = []
        for part, put in zip(plan.parts, world.puts, strict=True):
            width = world.shapes[part.table][1]
            for r in range(part.ptr[c], part.ptr[c + 1]):
                if part.kept is not None and not part.kept[r]:
                    continue
                row = r - part.ptr[c] if part.ids is None else int(part.ids[r])
                value = put.values[c if put.is_outer else r].astype(np.float64)
                value = np.append(value[: width - 1], value[-1])
                if put.weights is not None:
                    with np.errstate(invalid="ignore"):
                        value = value * np.float64(put.weights[row if put.by_row else r])
                rows.append((part.table, row, bool(part.marks()[r]), value))
        is_huge = any(np.abs(put.values[c]).max() > 1e15 for put in world.puts if put.is_outer)  # a clip may shorten it
        fits = shorten(rows, stages, int(client))
        if fits is not None and not is_huge:
            assert is_fit[c] == fits
        if not is_fit[c]:
            continue
        place = int(is_fit[:c].sum())
        assert release.positives[place] == sum(mark for _, _, mark, _ in rows)
        assert release.negatives[place] == sum(not mark for _, _, mark, _ in rows)
        assert release.bytes[place] == sum(row_bytes(world.shapes[name][1], RING) for name, *_ in rows)
        for name, row, mark, value in rows:
            ptr, ids, numbers = message.tables[name]
            assert ptr[place] <= at[name] < ptr[place + 1]
            assert ids[at[name]] == row
            assert message.sensitive[name][at[name]] == mark
            if not is_huge:
                np.testing.assert_allclose(RING.decode(numbers[at[name]]), value, rtol=4e-6, atol=1.5 / RING.scale)
            at[name] += 1
    assert all(at[name] == len(table[1]) for name, table in message.tables.items())


def shorten(rows: list[tuple[str, int, bool, np.ndarray]], stages: list[Stage], client: int) -> bool | None:
    """Shape a client's rows in place; say whether they fit, or None where it hangs on the last bit."""
    is_number = all(np.isfinite(value).all() and np.abs(value).max() < 1e15 for *_, value in rows)
    for stage in stages:
        if isinstance(stage, Weighing):
            for *_, value in rows:
                value *= np.float64(stage.factor[client])
        elif isinstance(stage, Clipping) and is_number:
            for *_, value in rows:
                value *= min(1.0, stage.row / max(float(np.linalg.norm(value)), 1e-30))
            whole = np.sqrt(sum(float(value @ value) for *_, value in rows))
            for *_, value in rows:
                value *= min(1.0, stage.person / max(whole, 1e-30))
    if not is_number:
        # an outer row of a weight of zero hides what its vector holds
        return False if all(np.abs(value).max(initial=0) > 0 for *_, value in rows) else None
    largest = max((float(np.abs(value).max()) for *_, value in rows), default=0.0)
    return largest <= RING.largest if abs(largest - RING.largest) > 1e-3 else None


# --- a method that does not keep to its plan -------------------------------------------------------------------------


def one_part(**changes: Any) -> UpdatePlan:
    rows = PlannedRows("items", np.array([0, 2, 3]), np.array([1, 4, 0], np.int32), True)
    return UpdatePlan(np.array([7, 9]), (replace(rows, **changes),))


def sink_of(plan: UpdatePlan, total: Total | None = None) -> UpdateSink:
    return UpdateSink(plan, (), RING, {"items": (5, 2)}, total)


def test_values_that_do_not_fit_the_plan_are_refused() -> None:
    with pytest.raises(MethodError, match="has 3 rows of 'items', 2 numbers each"):
        sink_of(one_part()).put(0, np.zeros((2, 2), np.float32))
    with pytest.raises(MethodError, match="has 3 rows of 'items', 2 numbers each"):
        sink_of(one_part()).put(0, np.zeros((3, 1), np.float32))
    with pytest.raises(MethodError, match="the plan has 1 parts"):
        sink_of(one_part()).put(1, np.zeros((3, 2), np.float32))
    twice = sink_of(one_part())
    twice.put(0, np.zeros((3, 2), np.float32))
    with pytest.raises(MethodError, match="twice"):
        twice.put(0, np.zeros((3, 2), np.float32))
    with pytest.raises(MethodError, match="no values for part 0"):
        sink_of(one_part()).finish()
    beyond = one_part(ids=np.array([1, 5, 0], np.int32))
    with pytest.raises(MethodError, match="does not have"):
        sink_of(beyond, Total.zero({"items": (5, 2)})).put(0, np.zeros((3, 2), np.float32))


def test_a_total_is_lent_only_where_nothing_shapes_the_values() -> None:
    total, plan = Total.zero({"items": (5, 2)}), one_part()
    assert sink_of(plan).direct() is None
    shaped = UpdateSink(plan, [(Clipping(row=1.0), KEY)], RING, total.shapes, total)
    assert shaped.direct() is None
    sink = UpdateSink(plan, [(Stage(), KEY)], RING, total.shapes, total)
    assert sink.direct() is total
    with pytest.raises(DivergedError):
        sink.check(16.5)
    with pytest.raises(DivergedError):
        sink.check(float("nan"))
    sink.check(16.0)
    _, release, is_fit = sink.finish()
    assert is_fit.all()
    assert total.n_clients == 2
    assert release.positives.tolist() == [2, 1]


def test_a_total_is_lent_to_a_method_that_clips_where_one_stage_clips_and_no_other_shapes() -> None:
    total, clip = Total.zero({"items": (5, 2)}), Clipping(row=1.0, person=3.0)

    def sink(*stages: Stage) -> UpdateSink:
        return UpdateSink(one_part(), [(stage, KEY) for stage in stages], RING, total.shapes, total)

    lent = sink(Stage(), clip)
    assert lent.direct(clips=True) is total
    assert lent.limits == Limits(1.0, 3.0)
    bare = sink()
    assert bare.direct(clips=True) is total
    assert bare.limits == Limits(np.inf, np.inf)
    assert sink(clip, clip).direct(clips=True) is None
    assert sink(Clipping(row=17.0)).direct(clips=True) is None, "the ring holds 16 at most"
    assert UpdateSink(one_part(), [(clip, KEY)], RING, total.shapes).direct(clips=True) is None


def test_rows_put_beside_a_direct_sum_must_fit_too() -> None:
    total = Total.zero({"items": (5, 2)})
    sink = sink_of(one_part(), total)
    assert sink.direct() is total
    sink.put(0, np.array([[1, 2], [3, np.nan], [5, 6]], np.float32))
    with pytest.raises(DivergedError):
        sink.finish()


def test_sums_of_32_bits_are_not_taken_where_they_could_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 clients who all send 8 for one row: 300 x 8 x 2^20 is beyond 32 bits."""
    monkeypatch.setattr(update_sink, "BLOCK_BYTES", 2**10)
    n = 300
    rows = PlannedRows("items", np.arange(n + 1), np.zeros(n, np.int32), True)
    total = Total.zero({"items": (5, 1)})
    for limit in (8.0, 1.0):
        sink = UpdateSink(UpdatePlan(np.arange(n), (rows,)), [(Clipping(row=limit), KEY)], RING, total.shapes, total)
        for block in sink.blocks(64):
            sink.put(0, np.full((block.stop - block.start, 1), 8.0, np.float32))
        sink.finish()
    assert total.sums["items"][0, 0] == n * (8 + 1) * 2**20
    assert total.counts["items"].tolist() == [2 * n, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"kept": np.ones(2, np.uint8)},
        {"sensitive": np.ones(2, np.bool_)},
        {"ptr": np.array([0, 3])},
        {"ptr": np.array([0, 2, 5])},
        {"ids": None},
        {"ids": np.array([1, -1, 0], np.int32)},
        {"ids": np.array([1, 5, 0], np.int32)},
    ],
)
@pytest.mark.parametrize("has_total", [False, True])
def test_a_plan_that_contradicts_itself_is_refused(changes: dict[str, Any], has_total: bool) -> None:
    """A message never holds memory of the process, and a sum never reaches beyond its table."""
    total = Total.zero({"items": (5, 2)}) if has_total else None
    plan = one_part(**changes)
    with pytest.raises(MethodError, match="of the plan"):
        sink_of(plan, total).put(0, np.zeros((plan.parts[0].n_rows, 2), np.float32))
    with pytest.raises(MethodError, match="of the plan"):
        sink_of(one_part(), total).put_outer(0, np.zeros((2, 3), np.float32))


def test_a_tiny_vector_with_a_huge_weight_is_clipped() -> None:
    """What counts is the length of the row: a crafted model must not get past the clip."""
    rows = PlannedRows("items", np.array([0, 1]), np.array([0], np.int32), True)
    sink = UpdateSink(UpdatePlan(np.array([0]), (rows,)), [(Clipping(row=0.01), KEY)], RING, {"items": (5, 2)})
    sink.put_outer(0, np.full((1, 2), 1e-30, np.float32), np.array([3e34], np.float32))
    message, _, _ = sink.finish()
    assert message is not None
    assert all(np.linalg.norm(table.values) <= 0.011 for table in message.read(RING).tables.values())


def test_rows_that_a_stage_drops_beside_sensitive_ones_are_not_added_directly() -> None:
    plan = one_part(sensitive=False, kept=np.array([1, 0, 1], np.uint8))
    assert sink_of(plan, Total.zero({"items": (5, 2)})).direct() is None
