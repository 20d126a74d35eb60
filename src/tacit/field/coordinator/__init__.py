"""The coordinator of a federation: it asks devices, adds what they answer, and forgets nothing it has finished."""

from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.coordinator import Coordinator
from tacit.field.coordinator.journal import CoordinatorJournal

__all__ = ["Carrier", "Coordinator", "CoordinatorJournal", "RoundRules"]
