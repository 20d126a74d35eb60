"""How a run is judged: the protocol, the list lengths and the metric that decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from tacit.errors import nearest
from tacit.types import Config

ACCURACY = ("HR", "NDCG", "Precision", "Recall", "F1", "MAP", "MRR")
MAX_K = 100
_SAMPLED = re.compile(r"(?:sampled-|uni)(\d+)")


class EvaluationConfig(Config):
    """Options of the evaluation; `sampled` and `max_k` are read off them."""

    former_names: ClassVar[Mapping[str, str]] = {
        "evaluation.twin_people": "evaluation.local_only_users",
        "evaluation.local_only_people": "evaluation.local_only_users",
    }
    protocol: str = Field(
        "full",
        description="full: rank every item outside the history; sampled-N (or uniN): each held-out item against N",
    )
    k: tuple[int, ...] = Field((10,), description=f"lengths of the lists, 1 to {MAX_K}")
    primary: str = Field("NDCG@10", description="metric for early stopping, selection and comparisons")
    repeats: Literal["miss", "rank"] = Field(
        "miss",
        description="a held-out item of the history is never recommended; or, under the sampled protocol, it is "
        "ranked, as published code with repeated rows does: a leak",
    )
    steps: Literal["one", "every"] = Field(
        "one",
        description="every: each held-out item is predicted from the history and the held-out items before it, and a "
        "user's value is the mean over them; one: all from the training history",
    )
    users: int = Field(
        0,
        ge=0,
        description="how many users with held-out items are evaluated, drawn at random; intervals say what that leaves "
        "open; 0: all users",
    )
    local_only_users: int = Field(
        100,
        ge=0,
        description="most clients with a local-only model for the leak verdict; fewer if it is clear; 0: no verdict",
    )

    placebo: Literal["auto", "always", "never"] = Field(
        "auto",
        description="train once more with random items held out, to see that the joint model does not depend on "
        "them; auto: methods from outside this package, whose laws are not part of its tests",
    )

    @model_validator(mode="before")
    @classmethod
    def _primary_follows_k(cls, given: Any) -> Any:
        if isinstance(given, dict) and "primary" not in given and "k" in given:
            k = given["k"] if isinstance(given["k"], (list, tuple)) else [given["k"]]
            numbers = [n for n in k if isinstance(n, int) and not isinstance(n, bool)]
            if numbers and 10 not in numbers:
                return {**given, "primary": f"NDCG@{max(numbers)}"}
        return given

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, protocol: str) -> str:
        match = _SAMPLED.fullmatch(protocol)
        if protocol != "full" and match is None:
            raise ValueError("the protocols are 'full' and 'sampled-N', as in 'sampled-100'")
        if match and not 1 <= int(match[1]) <= 10**6:
            raise ValueError("N of 'sampled-N' is from 1 to 1000000")
        return f"sampled-{int(match[1])}" if match else protocol

    @field_validator("k", mode="before")
    @classmethod
    def _one_is_a_list(cls, k: Any) -> Any:
        return (k,) if isinstance(k, int) and not isinstance(k, bool) else k

    @field_validator("k")
    @classmethod
    def _sorted_lengths(cls, k: tuple[int, ...]) -> tuple[int, ...]:
        if not k:
            raise ValueError("at least one list length is needed, as in [10]")
        outside = [n for n in k if not 1 <= n <= MAX_K]
        if outside:
            raise ValueError(f"list lengths are from 1 to {MAX_K}, not {outside[0]}")
        return tuple(sorted(set(k)))

    @model_validator(mode="after")
    def _primary_is_measured(self) -> EvaluationConfig:
        known = per_user_names(self)
        spelt = {name.lower(): name for name in known}.get(self.primary.lower())
        if spelt is None:
            base, _, cut = self.primary.partition("@")
            if base.lower() in {name.lower() for name in ACCURACY} and cut.isdigit():
                raise ValueError(f"primary '{self.primary}' is not measured with k = {list(self.k)}; add {cut} to k")
            raise ValueError(f"there is no primary metric '{self.primary}'. {nearest(self.primary, known)}")
        object.__setattr__(self, "primary", spelt)
        return self

    @property
    def sampled(self) -> int:
        """How many unseen items each held-out item is ranked against; 0 under the full protocol."""
        return 0 if self.protocol == "full" else int(self.protocol.removeprefix("sampled-"))

    @property
    def max_k(self) -> int:
        """Length of the longest list."""
        return self.k[-1]


def per_user_names(config: EvaluationConfig) -> list[str]:
    """Return the names of the metrics that have one value per user under these options."""
    names = [f"{name}@{k}" for k in config.k for name in ACCURACY]
    return [*names, "AUC"] if config.sampled else names
