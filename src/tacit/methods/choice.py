"""A method chosen by name, with its options beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SerializeAsAny, model_serializer, model_validator

from tacit.errors import ConfigError
from tacit.methods.base import Method, build, options
from tacit.types import Config


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
