"""A user's device: history, settings, private model and ledger, in one encrypted file."""

from tacit.field.device.device import Device
from tacit.field.device.settings import Sharing
from tacit.field.device.vault import ScryptCost

__all__ = ["Device", "ScryptCost", "Sharing"]
