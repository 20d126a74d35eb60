"""A federation of digit classifiers, round by round: who learnt, who counted how much, and what came out right.

Every round is one line on disk, and the model is saved beside it, so that hours of learning survive an interruption.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.data.formats.images import Digits
from tacit.protocols.criteria import model_closeness, weigh_clients
from tacit.random import Key
from tacit.studies.cnn import DigitCNN, Weights, average_models, distance_moved
from tacit.studies.pictures import Indices, by_shards, iid, label_diversity, test_parts
from tacit.types import Config, Progress

PARTITIONS: dict[str, Callable[[Any, int, Key], Indices]] = {"iid": iid, "shards": by_shards}
HELD = 10  # every tenth picture of a device is its validation part, where that is what judges


class DigitFederation(Config):
    """Who learns from what, and how: the thesis's sizes."""

    clients: int = Field(100, gt=0, description="devices that the pictures are dealt to")
    asked: int = Field(10, gt=0, description="devices per round")
    local_epochs: int = Field(5, gt=0, description="steps of gradient descent on all of a device's pictures")
    pictures: int = Field(60_000, ge=60, description="to learn from, at most; a sixth as many test pictures")
    judged: Literal["test", "validation"] = Field(
        "test", description="by which pictures: the test part, or a tenth of every device's own, to choose options by"
    )


@dataclass(frozen=True)
class PicturePartition:
    """Pictures in the hands of devices, and those that each is judged by."""

    images: NDArray[np.uint8]  # to learn from
    labels: NDArray[np.uint8]
    clients: Indices
    judged_images: NDArray[np.uint8]
    judged_labels: NDArray[np.uint8]
    own: Indices  # a device's positions in the judged ones


def deal(pictures: Digits, partition: str, setting: DigitFederation, key: Key) -> PicturePartition:
    """Deal pictures to devices; test pictures of its kinds go to each, or a tenth of its own are held back."""
    images, labels = pictures.train_images[: setting.pictures], pictures.train_labels[: setting.pictures]
    clients = PARTITIONS[partition](labels, setting.clients, key.child("deal"))
    if setting.judged == "test":
        judged = slice(setting.pictures // 6)
        own = test_parts(clients, labels, pictures.test_labels[judged], key.child("tests"))
        return PicturePartition(
            images, labels, clients, pictures.test_images[judged], pictures.test_labels[judged], own
        )
    held = [mine[::HELD] for mine in clients]
    ends = np.cumsum([len(part) for part in held])
    own = [np.arange(end - len(part), end) for part, end in zip(held, ends, strict=True)]
    every = np.concatenate(held)
    kept = [np.setdiff1d(mine, part) for mine, part in zip(clients, held, strict=True)]
    return PicturePartition(images, labels, kept, images[every], labels[every], own)


@dataclass
class Curve:
    """What every round came to, for one order of criteria."""

    order: str
    seed: int
    own: Indices  # whose pictures are whose
    right: list[NDArray[np.bool_]] = field(default_factory=list)  # one per round: [judged pictures]
    weights: list[list[float]] = field(default_factory=list)  # of those who were asked
    seconds: list[float] = field(default_factory=list)  # of processor time

    def accuracy(self, number: int) -> NDArray[np.float64]:
        """Return every device's accuracy on its own pictures after a round, counted from 0."""
        right = self.right[number]
        return np.array([right[mine].mean() if len(mine) else 0.0 for mine in self.own])

    @cached_property
    def overall(self) -> list[float]:
        """The accuracy over all devices after each round, weighted by their pictures."""
        return [float(right.mean()) for right in self.right]

    @property
    def best(self) -> int:
        """The round with the highest accuracy over all, counted from 0."""
        return int(np.argmax(self.overall))

    def until(self, target: float, share: float) -> int | None:
        """Return after how many rounds a share of devices has reached a target, None if never."""
        for number in range(len(self.right)):
            if (self.accuracy(number) >= target).mean() >= share:
                return number + 1
        return None


@dataclass(frozen=True)
class DigitRun:
    """What one federation is run with."""

    partition: str
    order: str
    learning_rate: float
    setting: DigitFederation
    key: Key


LEARNING = 2  # another number whenever the same options learn otherwise: kept rounds of before do not go on


@dataclass(frozen=True)
class FederationLog:
    """The rounds of a federation on disk: a line each, and the model after the last."""

    lines: Path
    model: Path

    @classmethod
    def of(cls, folder: Path, run: DigitRun) -> FederationLog:
        """Return the folder of the rounds of these options."""
        asked = json.dumps([LEARNING, run.setting.model_dump(mode="json"), run.learning_rate, run.key.seed])
        mark = hashlib.blake2b(asked.encode(), digest_size=4).hexdigest()
        stem = f"mnist-{run.partition}-{run.order.replace(' > ', '-')}-{mark}"
        return cls(folder / f"{stem}.jsonl", folder / f"{stem}.npz")

    def read_rounds(self) -> tuple[list[dict[str, Any]], Weights | None]:
        """Return all rounds whose model is there, and that model."""
        if not (self.lines.is_file() and self.model.is_file()):
            return [], None
        with np.load(self.model) as arrays:
            model = {name: arrays[name] for name in arrays.files}
        done = int(model.pop("round"))
        return [json.loads(line) for line in self.lines.read_text(encoding="utf-8").splitlines()[:done]], model

    def add(self, lines: list[dict[str, Any]], model: Weights) -> None:
        """Write the newest round down, then its model."""
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        whole = "".join(json.dumps(line) + "\n" for line in lines)
        for path, write in (
            (self.lines, lambda partial: partial.write_text(whole, encoding="utf-8")),
            (self.model, lambda partial: np.savez(partial, round=np.array(len(lines)), **model)),  # type: ignore[arg-type]
        ):
            partial = path.with_name(f".{os.getpid()}-{path.name}")  # the ending stays: numpy would add its own
            write(partial)
            partial.replace(path)


def train_federation(pictures: Digits, run: DigitRun, rounds: int, kept: FederationLog, progress: Progress) -> Curve:
    """Learn together for so many rounds, weighing devices by criteria in an order; go on from what is kept."""
    dealt, label = (
        deal(pictures, run.partition, run.setting, run.key),
        f"mnist {run.partition}: {run.order}, seed {run.key.seed}",
    )
    lines, shared = kept.read_rounds()
    if len(lines) < rounds:
        model = DigitCNN(run.key.seed)
        shared = model.weights() if shared is None else shared
        for number in range(len(lines), rounds):
            progress(label, number, rounds)
            started = time.perf_counter(), time.process_time()
            line, shared = _round(model, shared, dealt, run, number)
            wall, processor = time.perf_counter() - started[0], time.process_time() - started[1]
            lines.append({"round": number + 1, **line, "seconds": round(wall, 1), "processor": round(processor, 1)})
            kept.add(lines, shared)
    progress(label, rounds, rounds)
    curve, n_judged = Curve(run.order, run.key.seed, dealt.own), len(dealt.judged_labels)
    for line in lines[:rounds]:
        packed = np.frombuffer(bytes.fromhex(line["right"]), np.uint8)
        curve.right.append(np.unpackbits(packed, count=n_judged).astype(bool))
        curve.weights.append(line["weights"])
        curve.seconds.append(line["processor"])
    return curve


def _round(
    model: DigitCNN, shared: Weights, dealt: PicturePartition, run: DigitRun, number: int
) -> tuple[dict[str, Any], Weights]:
    """Ask some devices, weigh and average what they learnt, and evaluate on all pictures."""
    setting, names = run.setting, run.order.split(" > ")
    chance = run.key.child("choose", number).generator()
    asked = np.sort(chance.choice(setting.clients, setting.asked, replace=False))
    learnt = []
    for client in asked:
        mine = dealt.clients[client]
        model.load(shared)
        learnt.append(model.learn(dealt.images[mine], dealt.labels[mine], setting.local_epochs, run.learning_rate))
    measured = {
        "DS": np.array([float(len(dealt.clients[c])) for c in asked]),
        "LD": label_diversity(dealt.labels, [dealt.clients[c] for c in asked]),
        "MW": model_closeness(np.array([distance_moved(shared, after) for after in learnt])),
    }
    weights = weigh_clients(names, np.array([measured[name] for name in names])).weights
    shared = average_models(learnt, weights)
    model.load(shared)
    right = model.right(dealt.judged_images, dealt.judged_labels)
    line = {
        "asked": asked.tolist(),
        **{name: values.tolist() for name, values in measured.items()},
        "weights": weights.tolist(),
        "accuracy": float(right.mean()),
        "right": np.packbits(right).tobytes().hex(),
    }
    return line, shared
