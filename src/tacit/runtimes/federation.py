"""A federation: what all its members agree on before the first round. It is public and holds nothing about people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field

from tacit.errors import ConfigError, DataError, WireError
from tacit.methods.base import Distributes, Federated, build, options
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.outbound import Stage
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Labels, Vocabulary, offsets
from tacit.updates import Ring

_NOT_HERE = {
    "pi": "each person decides what leaves her device",
    "warm_start": "a device reads no folder that somebody else names",
}


class Federation(Config):
    """Method, options, ring and catalogue of a federation. Its digest stands in every message."""

    format: Literal[1] = 1
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="drawn once, when the federation is founded")
    name: str = Field(min_length=1, max_length=80, description="what people call it")
    method: str
    options: dict[str, Any] = Field({}, description="the method's options, all of them")
    ring: Ring = Ring()
    clip: ClippingConfig | None = Field(None, description="how long what leaves may be; stands after the disclosure")
    catalog: str = Field(pattern=r"^[0-9a-f]{64}$", description="digest of the catalogue")

    @classmethod
    def found(
        cls,
        id: str,
        name: str,
        method: str,
        given: dict[str, Any],
        catalog: Catalog,
        *,
        ring: Ring | None = None,
        clip: ClippingConfig | None = None,
    ) -> Federation:
        """Settle what members agree on; the method must be one that can learn on devices."""
        chosen = options(method, given).model_dump(mode="json")
        return cls(
            id=id,
            name=name,
            method=method,
            options=chosen,
            ring=ring or Ring(),
            clip=clip,
            catalog=digest_of(catalog_bytes(catalog)),
        ).checked_method()

    def checked_method(self) -> Federation:
        """Refuse a method that cannot run in the field."""
        if not isinstance(self.built, Federated):
            raise ConfigError(
                f"'{self.method}' is not federated: it needs all histories in one place.", "Choose fpl or fed-gmf."
            )
        if self.built.uses_features:
            raise ConfigError(
                f"'{self.method}' learns from item features, which are not sent to devices.", "Choose fpl or fed-gmf."
            )
        for option, why in _NOT_HERE.items():
            if self.options.get(option) is not None:
                raise ConfigError(f"method.{option} has no place in a federation: {why}.", "Take it away.")
        return self

    @cached_property
    def built(self) -> Any:
        """The method, ready to learn."""
        return build(self.method, self.config)

    @cached_property
    def config(self) -> Config:
        """The method's options, checked."""
        return options(self.method, self.options)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that everybody's updates pass, after the person's own disclosure."""
        return () if self.clip is None else (Clipping.build(self.clip),)

    def canonical(self) -> bytes:
        """Return the one way to write it."""
        return canonical(self.model_dump(mode="json"))

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it."""
        return hashlib.sha256(self.canonical()).digest()

    def first_model(self, catalog: Catalog, key: Key) -> dict[str, Array]:
        """Return the shared arrays before the first round. No history is at hand, so they must not depend on any."""
        one, two = (self.built.init(_stranger(n, catalog), catalog, key).shared for n in (1, 2))
        for name, array in one.items():
            if not np.array_equal(array, two[name]):
                raise ConfigError(
                    f"The first '{name}' of {self.method} depends on people's histories, which stay on their devices.",
                    f"Set the option that stands for it: method.{name}.",
                )
        return dict(one)

    def check_model(self, shared: Mapping[str, Array], first: Mapping[str, Array]) -> None:
        """Refuse a model that cannot have come from the `first` one: other arrays, shapes or types, other constants."""
        seen, agreed = ({name: (str(a.dtype), a.shape) for name, a in model.items()} for model in (shared, first))
        if seen != agreed:
            raise WireError(
                f"The model is of another catalogue or version: its arrays are {seen}, not {agreed}.",
                "Join again with a new invitation.",
            )
        learnt = {*self.built.tables, *getattr(self.built, "downloads", ())}
        for name, array in shared.items():
            if name not in learnt and not np.array_equal(array, first[name]):
                raise WireError(
                    f"'{name}' of the model is {array}, but the members agreed on {first[name]}.",
                    "Its sender means no good: nothing was changed.",
                )

    def sent(self, shared: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays that a device receives."""
        method = self.built
        if not isinstance(method, Distributes):
            return dict(shared)
        return {name: shared[name] for name in method.downloads}


def _stranger(n: int, catalog: Catalog) -> Clients:
    """Somebody who did the first n things of the catalogue and nothing else."""
    items = np.arange(min(n, catalog.n_items), dtype=np.int32)
    return Clients(np.zeros(1, np.int64), offsets(np.array([len(items)])), items, catalog.n_items)


def canonical(value: Any) -> bytes:
    """Write JSON in one way only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(content: bytes) -> str:
    """Return SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def catalog_bytes(catalog: Catalog) -> bytes:
    """Write what devices know of a catalogue: ids, titles, categories."""
    about: dict[str, Any] = {"items": catalog.item_ids.labels.tolist()}
    if catalog.titles is not None:
        about["titles"] = list(catalog.titles)
    if catalog.categories is not None:
        labels = catalog.categories
        about["categories"] = {"ptr": labels.ptr.tolist(), "ids": labels.ids.tolist(), "names": list(labels.names)}
    return canonical(about)


def catalog_from(content: bytes) -> Catalog:
    """Read what `catalog_bytes` wrote; anything else is a DataError."""
    try:
        about = json.loads(content)
        items = about["items"]
        n_items = len(items)
        whole = all(type(label) is int and abs(label) < 2**63 for label in items)
        if not n_items or not (whole or all(type(label) is str for label in items)) or len(set(items)) < n_items:
            raise ValueError("its ids are not unique numbers or unique words")
        titles = about.get("titles")
        if titles is not None and (len(titles) != n_items or any(type(title) is not str for title in titles)):
            raise ValueError("it has not one title for each item")
        return Catalog(
            Vocabulary(np.array(items, np.int64 if whole else object)),
            titles,
            _labels(about.get("categories"), n_items),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise DataError(f"This is not a catalogue: {error}.") from None


def _labels(about: Any, n_items: int) -> Labels | None:
    if about is None:
        return None
    ptr, ids, names = np.array(about["ptr"], np.int64), np.array(about["ids"], np.int32), about["names"]
    if any(type(name) is not str for name in names):
        raise ValueError("a category has no name")
    fits = ptr.shape == (n_items + 1,) and ids.ndim == 1 and ptr[0] == 0 and ptr[-1] == len(ids)
    if not fits or (np.diff(ptr) < 0).any() or (len(ids) and not 0 <= ids.min() <= ids.max() < len(names)):
        raise ValueError("its categories do not fit its items")
    return Labels(ptr, ids, list(names))
