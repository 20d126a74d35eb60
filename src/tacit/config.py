"""One YAML file is one frozen object: an `Experiment` (one run) or a `Comparison` (many)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Discriminator, Field, Tag, model_validator

from tacit.data import DataConfig, SplitConfig
from tacit.errors import ConfigError
from tacit.evaluation import EvaluationConfig
from tacit.lab.training import RuntimeConfig
from tacit.methods.choice import MethodChoice
from tacit.privacy.clipping import ClippingConfig
from tacit.privacy.disclosure import DisclosureConfig
from tacit.privacy.dp import DPConfig
from tacit.strict_yaml import read_yaml, refuse_missing
from tacit.types import Config


def _stage_name(given: Any) -> str:
    return str(given.get("name", "disclose") if isinstance(given, Mapping) else getattr(given, "name", given))


StageConfig = Annotated[
    Annotated[DisclosureConfig, Tag("disclose")]
    | Annotated[ClippingConfig, Tag("clip")]
    | Annotated[DPConfig, Tag("dp")],
    Discriminator(
        _stage_name,
        custom_error_type="no_such_stage",
        custom_error_message="there is no such stage; known are disclose, clip and dp",
    ),
]


class _RunSettings(Config):
    """The options that a run and a comparison share: data, split, runtime, evaluation."""

    name: str = Field(
        "run", pattern=r"^[\w.@+-]+$", description="names the run's folder, with letters, digits and . _ @ + - only"
    )
    seed: int = Field(42, ge=0, description="the seed of all random draws of the run")
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    privacy: tuple[StageConfig, ...] = Field(
        (), description="privacy stages between an update and the message that leaves a device"
    )
    runtime: RuntimeConfig = RuntimeConfig()
    evaluation: EvaluationConfig = EvaluationConfig()


class Experiment(_RunSettings):
    """Everything that decides a run's numbers."""

    method: MethodChoice

    @model_validator(mode="after")
    def _every_option_has_an_effect(self) -> Experiment:
        if self.runtime.evaluate_every and not self.split.validation:
            raise ValueError("runtime.evaluate_every needs a validation part; set split.validation too")
        if self.runtime.patience and not self.runtime.evaluate_every:
            raise ValueError("runtime.patience counts checkpoints; set runtime.evaluate_every too")
        if self.evaluation.steps == "every" and (self.split.is_by_chance or self.split.cold_items):
            what = "cold_items" if self.split.cold_items else f"kind '{self.split.kind}'"
            raise ValueError(
                f"evaluation.steps=every needs rows held out by time, and split.{what} also takes older ones"
            )
        if any(isinstance(stage, DPConfig) for stage in self.privacy[:-1]):
            raise ValueError("dp must be the last privacy stage: what comes after it could undo its bound")
        return self

    @property
    def stages(self) -> tuple[DisclosureConfig | ClippingConfig | DPConfig, ...]:
        """The privacy stages, in order; `method.pi` is shorthand for a first one."""
        pi = getattr(self.method.options, "pi", None)
        if pi is None:
            return self.privacy
        if self.privacy:
            raise ConfigError(
                "method.pi and the privacy section both set what may leave a device.", "Keep one of them."
            )
        return (DisclosureConfig.from_options({"pi": pi}, "method"),)


class Comparison(_RunSettings):
    """Several methods under the same protocol, each with `repeat` seeds, optionally swept over a grid."""

    methods: tuple[MethodChoice, ...] = Field(min_length=1)
    repeat: int = Field(1, ge=1, description="seeds s, s+1, ...: one run each")
    grid: dict[str, tuple[Any, ...]] = Field({}, description="option path -> values; every combination is run")

    @model_validator(mode="after")
    def _check_labels(self) -> Comparison:
        labels = [method.called for method in self.methods]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise ValueError(f"two methods are both called '{twice}'; give one of them another label")
        return self

    def experiments(self) -> Iterator[tuple[str, Experiment]]:
        """Yield (label, experiment) for every method, point of the grid, seed and fold, those of a label together."""
        shared = self.model_dump(mode="json", exclude={"methods", "repeat", "grid"})
        names = [method.name for method in self.methods]
        for method in self.methods:
            called = method.called if method.label or names.count(method.name) > 1 else method.name
            for point in product(*self.grid.values()):
                settings = dict(zip(self.grid, point, strict=True))
                label = " ".join([called, *(f"{k.split('.')[-1]}={v}" for k, v in settings.items())])
                for seed in range(self.seed, self.seed + self.repeat):
                    base = {**shared, "method": method.model_dump(mode="json"), "seed": seed}
                    one = Experiment.from_options(apply_overrides(base, settings), "the comparison")
                    for cut in one.split.every_fold():
                        yield label, one.model_copy(update={"split": cut})


T = TypeVar("T", bound=Config)


def read_config(kind: type[T], path: Path, overrides: Iterable[str] = ()) -> T:
    """Read an experiment, a comparison or another configuration from a YAML file, with `a.b=c` overrides applied."""
    refuse_missing(path)
    try:
        given = read_yaml(path.read_text(encoding="utf-8"), f"'{path}'")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}.", "Give a text file in UTF-8.") from None
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' holds no options.", "It should start with keys such as 'data:' and 'method:'.")
    if issubclass(kind, Experiment) and "methods" in given:
        raise ConfigError(f"'{path}' lists several methods.", f"Use `tacit compare {path}`.")
    if issubclass(kind, Comparison) and "method" in given:
        raise ConfigError(f"'{path}' names one method.", f"Use `tacit run {path}`, or list them under 'methods:'.")
    return kind.from_options(apply_overrides(given, parse_overrides(overrides)), f"'{path}'")


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Turn `["method.reg=300"]` into `{"method.reg": 300}`; values are read as YAML."""
    settings: dict[str, Any] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"'{text}' is not an override.", "Write --set method.reg=300.")
        try:
            settings[path.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"The value of '{text}' cannot be read.", "Write it as in YAML.") from None
    return settings


def apply_overrides(given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with dotted paths set; a section given by its bare name (`method: ease`) is opened first.

    A number names a place of a list: `privacy.0.epsilon`. In a list of one, the number may be left out.
    """
    result: dict[str, Any] = _copy(given)
    for path, value in settings.items():
        *sections, last = path.split(".")
        here: Any = result
        for section in sections:
            at = _place(here, section, path)
            inner = here[at] if isinstance(here, list) else here.get(section)
            if inner is None or isinstance(inner, str):
                inner = {} if inner is None else {"name" if section == "method" else "source": inner}
            if not isinstance(inner, dict | list):
                raise ConfigError(f"'{path}' cannot be set: '{section}' has no options of its own.")
            here[at] = inner
            here = inner
        here = _only_stage(here, last)
        here[_place(here, last, path)] = value
    return result


def _only_stage(here: Any, section: str) -> Any:
    """Return the one element of a list that a name, not a number, asks for; everything else as it is."""
    is_one = isinstance(here, list) and len(here) == 1 and isinstance(here[0], dict)
    return here[0] if is_one and not section.isdigit() else here


def _place(here: Any, section: str, path: str) -> Any:
    """Return the key of a section, or, in a list, its place."""
    if not isinstance(here, list):
        return section
    if not section.isdigit() or int(section) >= len(here):
        raise ConfigError(
            f"'{path}' cannot be set: '{section}' is no place of a list of {len(here)}.",
            "Places begin with 0: privacy.0.epsilon is an option of the first stage.",
        )
    return int(section)


def to_yaml(config: Config) -> str:
    """Return the resolved configuration as YAML; reading it back gives an equal object."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _copy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_copy(v) for v in value]
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value
