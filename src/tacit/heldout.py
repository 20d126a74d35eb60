"""The held-out part of a split. Only `tacit.evaluation` opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.types import Clients


class Heldout:
    """The held-out part of a split. Only `tacit.evaluation` opens it.

    Methods, samplers and runtimes are never given one: their signatures take `Clients` and `Catalog`, and `make check`
    refuses a file of theirs that names this type.
    """

    __slots__ = ("__seen", "__truth")

    def __init__(self, truth: Clients, seen: Clients) -> None:
        """`truth`: held-out items per user, -1 if an item is not in the catalogue; `seen`: their earlier history."""
        self.__truth = truth
        self.__seen = seen

    def __len__(self) -> int:
        return len(self.__truth)

    def __repr__(self) -> str:
        return f"Heldout({len(self)} users)"

    def __reduce__(self) -> str:
        raise TypeError("Held-out items are never serialised.")

    def open(self) -> tuple[Clients, Clients]:
        """Return (truth, seen) with the same users in the same order. For `tacit.evaluation` only."""
        return self.__truth, self.__seen

    @contextmanager
    def replace(self, truth: Clients) -> Iterator[None]:
        """Hold out other items for a while, for the same users. For `tacit.evaluation` only."""
        kept, self.__truth = self.__truth, truth
        try:
            yield
        finally:
            self.__truth = kept
