"""Which rounds a coordinator may not run: those that its method, or the guarantee of its federation, does not allow."""

from __future__ import annotations

from tacit.errors import ConfigError
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.round_policy import count_needed
from tacit.methods.base import FederatedSpec
from tacit.protocols.guarantee import refuse_exact_counts, refuse_groups
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.wire.federation import Federation


def refuse_readable_only(spec: FederatedSpec, rules: RoundRules) -> None:
    """Refuse secure aggregation of a method whose server must read every client's own row."""
    if spec.client_tables and rules.secure is not None:
        raise ConfigError(
            f"This method cannot run under secure aggregation: its server reads a row of '{spec.client_tables[0]}' "
            "from every client.",
            "Set rounds.secure to none if all members agree to that, or choose another method.",
        )


def refuse_unguarded(federation: Federation, rules: RoundRules, n_devices: int = 0) -> None:
    """Refuse rounds under which the guarantee of a federation would not hold for so many devices."""
    if federation.privacy is None:
        return
    if rules.secure is None:
        raise ConfigError(
            "rounds.secure is off: the coordinator would read every answer, and noise protects sums only.",
            "Set rounds.secure to auto, or remove the guarantee (privacy).",
        )
    refuse_groups(rules.robust, "rounds.robust")
    secure = rules.secure if isinstance(rules.secure, SecureAggregationConfig) else None
    refuse_exact_counts(secure is not None and secure.two_stage, "rounds.secure.two_stage")
    held = federation.privacy.participations
    if held is not None and not rules.clients_per_round and (rules.rounds or 0) > held:
        raise ConfigError(
            f"rounds.rounds is {rules.rounds}, and every device is asked in each, but a device's budget holds {held} "
            "sums (privacy.participations).",
            f"Set rounds.rounds to {held} or less, or found a federation with more participations.",
        )
    most = max(n_devices, rules.quorum, rules.minimum, rules.clients_per_round, count_needed(rules, settled=True))
    if federation.privacy.delta * most >= 1:
        raise ConfigError(
            f"privacy.delta is {federation.privacy.delta:g}, and there are {most} devices: a coordinator that "
            "publishes one of them whole has that delta.",
            f"Found a federation with a delta below {1 / most:.2g}; 1 / (10 devices) is usual.",
        )
