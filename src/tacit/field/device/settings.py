"""A user's settings of sharing, and items and categories by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from tacit.errors import DataError, DeviceError, nearest
from tacit.field.device.limits import TimeLimits
from tacit.field.device.similar_names import normalise_text, rank_similar
from tacit.languages.sentences import Sentence
from tacit.protocols.directory import DirectoryPolicy
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.random import Key
from tacit.types import Catalog, Config, Label, Vocabulary

if TYPE_CHECKING:
    from tacit.privacy.disclosure import Disclosure

USUAL_PI = 0.7
LEVELS: Mapping[str, float] = {"strict": 1.0, "balanced": 4.0, "open": 8.0}  # epsilon
ADVISED = 3  # items that are named where one was not found


class Sharing(Config):
    """What may leave. Nothing leaves at all while `paused`, or without a federation."""

    pi: float = Field(USUAL_PI, ge=0, le=1, description="probability that a row about an item of the history leaves")
    coin: Literal["row", "item", "once"] = Field(
        "once", description="one coin per row; one per item and round; or once per item, for all rounds"
    )
    never_items: tuple[Label, ...] = Field((), description="items whose positive rows never leave")
    never_categories: tuple[str, ...] = Field((), description="categories whose positive rows never leave")
    masked_only: bool = Field(True, description="messages leave in masked rounds only")
    measure: bool = Field(
        True, description="a masked sum may include whether the newest item was in the recommended list"
    )
    device_policy: DevicePolicy = Field(
        DevicePolicy(), description="what the device demands of a masked round before it takes part"
    )
    directory: DirectoryPolicy = Field(
        DirectoryPolicy(), description="what the device demands of the directory of members, where a witness is named"
    )
    privacy: Literal["strict", "balanced", "open"] = Field(
        "balanced", description="the most that a federation with differential privacy may learn: epsilon 1, 4 or 8"
    )
    limits: TimeLimits = Field(TimeLimits(), description="when this device takes part at all")
    paused: bool = Field(False, description="nothing leaves until the user resumes")

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_files(cls, given: Any) -> Any:
        """Device files of the version before call the device policy `guards`; there is nothing for the user to do."""
        if isinstance(given, Mapping) and "guards" in given:
            return {"device_policy": given["guards"], **{name: given[name] for name in given if name != "guards"}}
        return given

    def forbids_more(self, before: Sharing) -> bool:
        """Say whether a message made under settings `before` could hold what these keep here."""
        return (
            self.pi < before.pi
            or (self.coin, self.device_policy) != (before.coin, before.device_policy)
            or self.directory != before.directory
            or not {*self.never_items} <= {*before.never_items}
            or not {*self.never_categories} <= {*before.never_categories}
            or (before.measure and not self.measure)
            or self.most_epsilon < before.most_epsilon
        )

    @property
    def most_epsilon(self) -> float:
        """The epsilon of the user's level: sums that would reveal more are not joined."""
        return LEVELS[self.privacy]

    def stage(self, client_id: int, catalog: Catalog, coins: Key | None = None) -> Disclosure:
        """Return the disclosure stage of the user's updates; its draws are those of `client_id`.

        Coins that are tossed once come from `coins`; without them the stage says which items never leave, no more.
        """
        from tacit.privacy.disclosure import Disclosure, DisclosureConfig  # its kernels are for those who learn

        config = DisclosureConfig(
            pi=self.pi, coin=self.coin, never_items=self.never_items, never_categories=self.never_categories
        )
        return Disclosure.build(config, Vocabulary(np.arange(client_id + 1)), catalog, coins or Key(0))


def find_item(named: Label, catalog: Catalog) -> int:
    """Return the index of an item given by its id or, where only one item is called so, by its title."""
    try:
        return catalog.item_ids.index(named, "item")
    except DataError:
        titles = catalog.titles
    text = str(named).casefold().strip()
    if titles is not None:
        called = [item for item, title in enumerate(titles) if title.casefold() == text]
        if len(called) == 1:
            return called[0]
        if called:
            ids = ", ".join(str(catalog.item_ids[item]) for item in called[:5])
            raise DataError(
                Sentence("'{named}' is the title of {n} items.", named=named, n=len(called)),
                Sentence("Give the id of one: {ids}.", ids=ids),
            )
    raise DataError(Sentence("The catalogue has no item '{named}'.", named=named), _similar_items(str(named), catalog))


def _similar_items(text: str, catalog: Catalog) -> str:
    """Name the nearest items, by id or title."""
    ids = [str(label) for label in catalog.item_ids.labels.tolist()]
    titles = list(catalog.titles or ())
    near = rank_similar(text, [normalise_text(name) for name in (*titles, *ids)], ADVISED)
    if not near:
        some = ", ".join(f"'{catalog.title(item)}'" for item in range(min(3, catalog.n_items)))
        return Sentence("Items are called {some} and so on.", some=some)
    called = [f"'{titles[at]}' (id {ids[at]})" if at < len(titles) else f"'{ids[at - len(titles)]}'" for at in near]
    if len(called) == 1:
        return Sentence("Did you mean {one}?", one=called[0])
    return Sentence("Did you mean {some} or {last}?", some=", ".join(called[:-1]), last=called[-1])


def find_forbidden(never: str, catalog: Catalog) -> tuple[Label | None, str | None]:
    """Return (item, None) or (None, category) for the name of something that must never leave."""
    names = [] if catalog.categories is None else list(catalog.categories.names)
    for name in names:
        if name.casefold() == never.casefold():
            return None, name
    try:
        return catalog.item_ids[find_item(never, catalog)], None
    except DataError as error:
        hint = nearest(never, names) if names else error.hint
        raise DeviceError(
            Sentence("The catalogue has no item or category '{never}'.", never=never),
            hint if hint.startswith("Did") else error.hint,
        ) from None
