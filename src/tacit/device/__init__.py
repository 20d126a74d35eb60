"""One person's device: her history, settings, private model and ledger, in one encrypted file."""

from tacit.device.device import Device
from tacit.device.settings import Sharing
from tacit.device.vault import Cost

__all__ = ["Cost", "Device", "Sharing"]
