"""One YAML file is one frozen object: an `Experiment` (one run) or a `Comparison` (many)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Discriminator, Field, SerializeAsAny, Tag, model_serializer, model_validator

from tacit.data import DataConfig, SplitConfig
from tacit.errors import ConfigError
from tacit.evaluation import EvaluationConfig
from tacit.methods.base import Method, build, options
from tacit.privacy.clipping import ClippingConfig
from tacit.privacy.disclosure import DisclosureConfig
from tacit.runtimes.learning import RuntimeConfig
from tacit.strict_yaml import read_yaml, refuse_missing
from tacit.types import Config


def _stage_name(given: Any) -> str:
    return str(given.get("name", "disclose") if isinstance(given, Mapping) else getattr(given, "name", given))


StageConfig = Annotated[
    Annotated[DisclosureConfig, Tag("disclose")] | Annotated[ClippingConfig, Tag("clip")],
    Discriminator(
        _stage_name,
        custom_error_type="no_such_stage",
        custom_error_message="there is no such stage; known are disclose and clip",
    ),
]


class MethodChoice(Config):
    """A method by name with its options beside it: `{name: ease, reg: 300}`, or just `ease`."""

    name: str
    label: str | None = None  # what tables call it, where a method stands more than once
    options: SerializeAsAny[Config]

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = {"name": given}
        if not isinstance(given, Mapping) or "name" not in given:
            raise ConfigError(f"A method is a name or a mapping with a name, not {given!r}.", "Write {name: ease}.")
        if isinstance(given.get("options"), Config):
            return given
        rest = {key: value for key, value in given.items() if key not in ("name", "label")}
        return {"name": given["name"], "label": given.get("label"), "options": options(str(given["name"]), rest)}

    @model_serializer
    def _flatten(self) -> dict[str, Any]:
        named = {"name": self.name} if self.label is None else {"name": self.name, "label": self.label}
        return {**named, **self.options.model_dump(mode="json")}

    @property
    def called(self) -> str:
        """Its label, or its name with the options that are not the usual ones."""
        if self.label is not None:
            return self.label
        usual = type(self.options).model_fields
        unusual = {k: v for k, v in self.options if v != usual[k].default}
        return " ".join([self.name, *(f"{k}={v}" for k, v in unusual.items())])

    def build(self) -> Method:
        """Return the method, ready to learn."""
        return build(self.name, self.options)


class _Bench(Config):
    """What one run and a comparison share: the data, how it is cut, where it is learnt, how it is judged."""

    name: str = Field(
        "run", pattern=r"^[\w.@+-]+$", description="names the run's folder, with letters, digits and . _ @ + - only"
    )
    seed: int = Field(42, ge=0, description="every draw of the run follows from it")
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    privacy: tuple[StageConfig, ...] = Field((), description="stages that updates pass before they leave")
    runtime: RuntimeConfig = RuntimeConfig()
    evaluation: EvaluationConfig = EvaluationConfig()


class Experiment(_Bench):
    """Everything that decides a run's numbers."""

    method: MethodChoice

    @model_validator(mode="after")
    def _every_option_has_an_effect(self) -> Experiment:
        if self.runtime.look_every and not self.split.validation:
            raise ValueError("runtime.look_every looks at a validation part; set split.validation too")
        if self.runtime.patience and not self.runtime.look_every:
            raise ValueError("runtime.patience counts looks; set runtime.look_every too")
        return self

    @property
    def stages(self) -> tuple[DisclosureConfig | ClippingConfig, ...]:
        """The stages on the way out; `method.pi` is shorthand for a first one."""
        pi = getattr(self.method.options, "pi", None)
        if pi is None:
            return self.privacy
        if self.privacy:
            raise ConfigError("Both method.pi and the privacy section say what may leave.", "Keep one of them.")
        return (DisclosureConfig.checked({"pi": pi}, "method"),)


class Comparison(_Bench):
    """Several methods under the same protocol, each with `repeat` seeds, optionally swept over a grid."""

    methods: tuple[MethodChoice, ...] = Field(min_length=1)
    repeat: int = Field(1, ge=1, description="seeds s, s+1, ...: one run each")
    grid: dict[str, tuple[Any, ...]] = Field({}, description="option path -> values; every combination is run")

    @model_validator(mode="after")
    def _told_apart(self) -> Comparison:
        labels = [method.called for method in self.methods]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise ValueError(f"two methods are both called '{twice}'; give one of them another label")
        return self

    def experiments(self) -> Iterator[tuple[str, Experiment]]:
        """Yield (label, experiment) for every method, point of the grid and seed, the seeds of a label together."""
        shared = self.model_dump(mode="json", exclude={"methods", "repeat", "grid"})
        names = [method.name for method in self.methods]
        for method in self.methods:
            called = method.called if method.label or names.count(method.name) > 1 else method.name
            for point in product(*self.grid.values()):
                settings = dict(zip(self.grid, point, strict=True))
                label = " ".join([called, *(f"{k.split('.')[-1]}={v}" for k, v in settings.items())])
                for seed in range(self.seed, self.seed + self.repeat):
                    base = {**shared, "method": method.model_dump(mode="json"), "seed": seed}
                    yield label, Experiment.checked(overridden(base, settings), "the comparison")


T = TypeVar("T", bound=Config)


def read(kind: type[T], path: Path, overrides: Iterable[str] = ()) -> T:
    """Read an experiment, a comparison or another configuration from a YAML file, with `a.b=c` overrides applied."""
    refuse_missing(path)
    try:
        given = read_yaml(path.read_text(encoding="utf-8"), f"'{path}'")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read: {error}.") from None
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' holds no options.", "It should start with keys such as 'data:' and 'method:'.")
    if issubclass(kind, Experiment) and "methods" in given:
        raise ConfigError(f"'{path}' lists several methods.", f"Use `tacit compare {path}`.")
    if issubclass(kind, Comparison) and "method" in given:
        raise ConfigError(f"'{path}' names one method.", f"Use `tacit run {path}`, or list them under 'methods:'.")
    return kind.checked(overridden(given, parsed(overrides)), f"'{path}'")


def parsed(overrides: Iterable[str]) -> dict[str, Any]:
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


def overridden(given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with dotted paths set; a section given by its bare name (`method: ease`) is opened first."""
    result: dict[str, Any] = _copied(given)
    for path, value in settings.items():
        *sections, last = path.split(".")
        here = result
        for section in sections:
            inner = here.get(section)
            if inner is None or isinstance(inner, str):
                inner = {} if inner is None else {"name" if section == "method" else "source": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"'{path}' cannot be set: '{section}' holds no options.")
            here[section] = inner
            here = inner
        here[last] = value
    return result


def to_yaml(config: Config) -> str:
    """Return the resolved configuration as YAML; reading it back gives an equal object."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _copied(value: Any) -> Any:
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, Mapping) else value
