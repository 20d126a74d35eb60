"""The coordinator of a federation: it asks devices, adds what they answer, and forgets nothing it has finished."""

from tacit.coordinator.carrier import Carrier
from tacit.coordinator.config import RoundRules
from tacit.coordinator.coordinator import Coordinator
from tacit.coordinator.journal import Journal

__all__ = ["Carrier", "Coordinator", "Journal", "RoundRules"]
