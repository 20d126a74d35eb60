"""Options of a split, and which of them go together."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tacit.types import Config

_BELONGS = {"date": "global-time", "windows": "global-time", "new_users": "global-time", "gap": "last-session"}
_BELONGS |= {"folds": "k-fold", "fold": "k-fold", "draw": "k-fold"}
_BY_CHANCE = ("random", "k-fold")
_WITHOUT_COLD_ITEMS = {"kind": "given", "targets": "next", "catalog": "train"}


class SplitConfig(Config):
    """How each user's rows are parted."""

    kind: Literal["temporal", "leave-last-out", "global-time", "last-session", "random", "k-fold", "given"] = Field(
        "temporal",
        description="which rows are held out: each user's newest share, newest one, all rows from one moment on, "
        "newest session, random share, one of k equal random parts, or the split of the data itself",
    )

    test: float = Field(
        0.2, gt=0, lt=1, description="share of each history (global-time: of all rows) that is held out for the test"
    )
    date: str | None = Field(
        None, description="global-time: the test begins here (2000-12-01, UTC); none: with the newest share of all rows"
    )
    windows: int = Field(1, ge=1, description="global-time: the test period is cut into so many equal spans of time")
    window: int = Field(
        1, ge=1, description="global-time: which window is tested; train is what lies before it, later rows are unused"
    )
    gap: float = Field(60.0, gt=0, description="last-session: so many minutes without a row end a session")
    folds: int = Field(5, ge=2, description="k-fold: each user's rows are dealt to so many parts at random")
    fold: int = Field(
        0, ge=0, description="k-fold: which part is tested, from 1 on; 0: each in turn, in comparisons only"
    )
    draw: int = Field(0, ge=0, description="k-fold: seed of the parts; the seed of a run does not change them")
    targets: Literal["all", "next"] = Field(
        "all", description="'next': of each user's held-out rows only the oldest counts, as the next item"
    )
    new_users: Literal["leave-out", "keep"] = Field(
        "leave-out", description="global-time: users without a training row are not tested, or tested without a history"
    )
    rounding: Literal["down", "up"] = Field(
        "down", description="how the number of held-out rows is rounded: down, or up as Elliot does"
    )
    together: bool = Field(
        False, description="random, k-fold: repeated rows of a user and an item fall into one part and count as one"
    )
    validation: bool | float = Field(
        False, description="hold out a validation part of train in the same way; or its share"
    )
    cold_items: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of all items that have no training row: all their rows are held out, and metrics of them "
        "alone are reported apart; with validation, as many other items are cold there",
    )
    ties: Literal["smaller-item", "larger-item", "file-order"] = Field(
        "smaller-item",
        description="at equal times, which row counts as later: smaller or larger item id, or lower row; methods that "
        "use order have it from here too",
    )
    catalog: Literal["all", "train"] = Field(
        "all", description="'train': items without a training row cannot be ranked"
    )
    negatives: Literal["clean", "legacy"] = Field(
        "clean", description="'legacy' lets training see which items are held out, as much published code does: a leak"
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _holds_something_out(cls, kind: Any) -> Any:
        if kind == "none":
            raise ValueError("a run needs held-out rows to measure on; `tacit fit` trains on everything, for serving")
        return kind

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.together and not self.is_by_chance:
            raise ValueError(f"'together' belongs to kind 'random' or 'k-fold', not to '{self.kind}'")
        if self.fold > self.folds:
            raise ValueError(f"fold {self.fold} is not among the {self.folds} folds")
        for option, kind in _BELONGS.items():
            if self.kind != kind and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"'{option}' belongs to kind '{kind}', not to '{self.kind}'")
        if self.window > self.windows:
            raise ValueError(f"window {self.window} is not among the {self.windows} windows")
        for option, value in _WITHOUT_COLD_ITEMS.items():
            if self.cold_items and getattr(self, option) == value:
                raise ValueError(f"'cold_items' holds out whole items, which {option} '{value}' does not allow")
        if self.cold_items and self.cold_items * (2 if self.validation else 1) >= 1:
            raise ValueError(f"cold_items {self.cold_items:g} of the test and of the validation part leave nothing")
        if self.targets == "next" and self.kind in (*_BY_CHANCE, "given"):
            raise ValueError(f"targets 'next' needs a split by time, not '{self.kind}'")
        return self

    @property
    def is_by_chance(self) -> bool:
        """Whether chance decides which rows are held out, and not their time."""
        return self.kind in _BY_CHANCE

    def every_fold(self) -> list[Self]:
        """Return the splits that a comparison goes through: one per fold, or this one."""
        if self.kind != "k-fold" or self.fold:
            return [self]
        return [self.model_copy(update={"fold": fold}) for fold in range(1, self.folds + 1)]
