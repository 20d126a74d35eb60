"""MNIST's idx files and CelebA's lists of attributes and identities."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.archive import Member, require_member
from tacit.errors import DataError


@dataclass(frozen=True)
class Digits:
    """MNIST: grey images of handwritten digits with their class."""

    train_images: NDArray[np.uint8]  # [60000, 28, 28]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]  # [10000, 28, 28]
    test_labels: NDArray[np.uint8]


@dataclass(frozen=True)
class Faces:
    """CelebA without its pictures: who is on each, and 40 yes-or-no attributes."""

    images: NDArray[np.int64]  # [N] number of the picture, 1 is 000001.jpg
    identities: NDArray[np.int32]  # [N]
    attributes: NDArray[np.bool_]  # [N, 40]
    names: list[str]


def mnist(folder: Path) -> Digits:
    """Read mnist.npz, or the four official idx files."""
    ready = folder / "mnist.npz"
    if ready.is_file():
        with np.load(ready) as file:
            return Digits(file["x_train"], file["y_train"], file["x_test"], file["y_test"])
    images, labels = (
        [idx(require_member(folder, f"{part}-{kind}-ubyte")) for part in ("train", "t10k")]
        for kind in ("images-idx3", "labels-idx1")
    )
    return Digits(images[0], labels[0], images[1], labels[1])


def idx(source: Member) -> NDArray[np.uint8]:
    """Read an idx file of bytes: magic 0 0 8 n, n big-endian dimensions, values."""
    raw = source.read()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{source}: not an idx file of bytes (begins with {raw[:4].hex() or 'nothing'}).")
    n = raw[3]
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", n, 4)) if len(raw) >= 4 + 4 * n else (-1,)
    values = np.frombuffer(raw, np.uint8, offset=min(4 + 4 * n, len(raw)))
    if int(np.prod(shape)) != len(values):
        raise DataError(f"{source}: {shape} values announced, {len(values)} seen.", "Fetch the file again.")
    return values.reshape(shape)


def celeba(folder: Path) -> Faces:
    """Read celeba_attributes.npz, or list_attr_celeba.txt and identity_CelebA.txt."""
    ready = folder / "celeba_attributes.npz"
    if ready.is_file():
        with np.load(ready) as file:
            flags = np.unpackbits(file["attributes"], axis=1, count=40).astype(bool)
            names = [str(name) for name in file["attribute_names"]]
            return Faces(file["image"].astype(np.int64), file["identity"], flags, names)
    names, images, flags = _attributes(require_member(folder, "list_attr_celeba.txt"))
    people = _identities(require_member(folder, "identity_CelebA.txt"))
    missing = [image for image in images.tolist() if image not in people]
    if missing:
        raise DataError(f"{folder}: picture {missing[0]:06d}.jpg has attributes but no identity.")
    return Faces(images, np.array([people[image] for image in images.tolist()], np.int32), flags, names)


def _attributes(source: Member) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    lines = source.read().decode().splitlines()
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise DataError(f"{source}, line 1: the number of pictures is expected, seen '{lines[0] if lines else ''}'.")
    names = lines[1].split()
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[0]):
        raise DataError(f"{source}: {lines[0].strip()} pictures announced, {len(rows)} seen.", "Fetch it again.")
    for number, row in enumerate(rows, start=3):
        if len(row) != len(names) + 1 or set(row[1:]) - {"1", "-1"}:
            raise DataError(f"{source}, line {number}: {len(names)} values of 1 or -1 expected, seen '{row[:5]} ...'.")
    images = np.array([int(row[0].split(".")[0]) for row in rows], np.int64)
    flags = np.loadtxt(io.StringIO("\n".join(" ".join(row[1:]) for row in rows)), dtype=np.int8, ndmin=2) > 0
    return names, images, flags


def _identities(source: Member) -> dict[int, int]:
    people = {}
    for number, line in enumerate(source.read().decode().splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdigit():
            raise DataError(f"{source}, line {number}: 'picture person' expected, seen '{line[:60]}'.")
        people[int(fields[0].split(".")[0])] = int(fields[1])
    return people
