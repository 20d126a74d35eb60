"""A user's device: history, settings, private model and ledger, in one encrypted file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.field.device.device import Device
    from tacit.field.device.settings import Sharing
    from tacit.field.device.vault import ScryptCost

_HOME = {"Device": "device", "ScryptCost": "vault", "Sharing": "settings"}  # a program that only waits learns nothing

__all__ = ["Device", "ScryptCost", "Sharing"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tacit.field.device' has no attribute '{name}'")
    return getattr(import_module(f"tacit.field.device.{_HOME[name]}"), name)
