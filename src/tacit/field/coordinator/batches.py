"""Batches: devices that are summed together, because sums over changing cohorts could be solved for one.

Who is in the first sum of some devices is their batch. From then on all of them are asked, or none. A batch that lacks
a device waits, and others take their turn; the one that waited longest is asked first, and devices without a batch
before it. Once a device of a batch is revoked, the batch is not summed any more. Devices that have to stay with it wait
for good, and the others are devices without a batch again (`device_policy.py: staying`). A batch of twice as many
devices as a sum takes is counted in two halves. A row is listed only if both halves have enough participants that
mention it. So one participant with false counts lists no row alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.field.coordinator.members import EnrolledDevice

DrawBatch = Callable[[Sequence[EnrolledDevice], int], list[EnrolledDevice]]
"""Draws so many devices at most from some."""


@dataclass(frozen=True)
class BatchPlan:
    """The batch of a round: its halves by device number, and whether it was summed before, so that all must be in."""

    halves: tuple[tuple[int, ...], ...]
    is_formed: bool

    def half_of(self, device: int) -> int:
        """Return in which half a device is counted."""
        return next(half for half, devices in enumerate(self.halves) if device in devices)


@dataclass(frozen=True)
class BatchSupply:
    """Which batches there are, and what could be asked now."""

    known: dict[int, list[EnrolledDevice]]  # all members of each batch, here or not
    complete: list[int]  # batches of which every member is eligible
    can_cool_down: bool  # whether waiting for a cool-down would complete a batch, or make a new one possible
    unbatched: list[EnrolledDevice]  # eligible devices that are in no batch, or may leave theirs

    @classmethod
    def of(
        cls,
        enrolled: Sequence[EnrolledDevice],
        willing: Sequence[EnrolledDevice],
        eligible: Sequence[EnrolledDevice],
        least: int,
        most_cohorts: int = 1,
    ) -> BatchSupply:
        """Sort the devices of a federation into batches, from those who may take part and those who may now."""
        known = defaultdict[int, list[EnrolledDevice]](list)
        for device in enrolled:
            if device.batch:
                known[device.batch].append(device)
        free = {device.number for device in without_batch(enrolled, most_cohorts)}
        able, now = ({device.number for device in devices} for devices in (willing, eligible))
        complete = [batch for batch, members in known.items() if all(one.number in now for one in members)]
        later = any(
            batch not in complete and all(one.number in able for one in members) for batch, members in known.items()
        )
        n_free = sum(device.number in free for device in willing)
        unbatched = [device for device in eligible if device.number in free]
        return cls(dict(known), complete, later or len(unbatched) < least <= n_free, unbatched)


def without_batch(enrolled: Sequence[EnrolledDevice], most_cohorts: int) -> list[EnrolledDevice]:
    """Return the devices that are in no batch, or may leave one that has ended."""
    over = {device.batch for device in enrolled if device.revoked}

    def is_free(device: EnrolledDevice) -> bool:
        may_leave = not device.stays and device.cohorts < most_cohorts
        return not device.batch or (device.batch in over and may_leave)

    return [device for device in enrolled if is_free(device)]


def missing_from(enrolled: Sequence[EnrolledDevice], here: Sequence[EnrolledDevice]) -> set[int]:
    """Return the devices that are not here and for which a batch waits; one with a revoked device waits for none."""
    over = {device.batch for device in enrolled if device.revoked}
    there = {device.number for device in here}
    return {one.number for one in enrolled if one.batch and one.batch not in over and one.number not in there}


def choose_batch(
    supply: BatchSupply, least: int, size: int, last: Callable[[int], int | None], draw: DrawBatch
) -> tuple[list[EnrolledDevice], BatchPlan] | None:
    """Return whom to ask and in which halves; none if no batch is complete and too few devices are without one.

    A new batch has about `size` devices: fewer are not left over, because too few could not be asked by themselves.
    """
    if len(supply.unbatched) >= least:
        n_batches = max(1, len(supply.unbatched) // max(size, least))
        devices = draw(supply.unbatched, -(-len(supply.unbatched) // n_batches))
        parts = 2 if len(devices) >= 2 * least else 1
        return devices, BatchPlan(tuple(tuple(one.number for one in devices[at::parts]) for at in range(parts)), False)
    if not supply.complete:
        return None

    def waited(batch: int) -> tuple[int, int]:
        return max(-1 if (seen := last(one.number)) is None else seen for one in supply.known[batch]), batch

    devices = supply.known[min(supply.complete, key=waited)]
    halves = sorted({one.half for one in devices})
    return devices, BatchPlan(tuple(tuple(one.number for one in devices if one.half == half) for half in halves), True)
