"""`tacit serve --check`: what a configuration would do, and what is wrong with it. Nothing is written."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tacit.field.catalogue_file import CatalogueChange
from tacit.field.certificates import load_certificates
from tacit.field.coordinator.round_policy import count_needed, is_settled
from tacit.field.operator_sentences import describe_trial, describe_unagreed
from tacit.field.serve import ServeConfig, host_port, open_federation, plan_federation, publish_catalogue
from tacit.protocols.secure_aggregation.identity import Identity


@dataclass(frozen=True)
class ConfigCheck:
    """What a configuration would do."""

    is_founded: bool
    federation: str  # its id, which a login server needs; empty before it is founded
    method: str
    items: int
    devices: int  # enrolled
    needed: int  # that must be connected before a round begins
    change: CatalogueChange | None  # of the catalogue, that a start would publish
    warnings: tuple[str, ...]


def check_config(config: ServeConfig) -> ConfigCheck:
    """Read everything that `tacit serve` would read, and run its trial round; whatever is wrong is raised."""
    warnings = []
    for address in (config.listen, config.public, *([config.metrics] if config.metrics else [])):
        host_port(address)
    if config.metrics_token is not None:
        from tacit.field.metrics import read_token_file

        read_token_file(config.metrics_token)
    if config.certificate is not None and config.key is not None:
        load_certificates(config.certificate, config.key, config.roots)
    if _is_in_use(*host_port(config.listen)):
        warnings.append(f"Another program listens on {config.listen}; if it is this coordinator, all is well.")
    if config.rounds.readable:
        warnings.append("Rounds may be readable (rounds.readable): you can then read each answer.")
    if config.trial is not None:
        warnings.append(describe_trial(config.trial))
    if config.address is None and config.listen.startswith(("0.0.0.0", "[::]")):
        warnings.append("Invitations name the address of `listen`, which no device can reach. Set `address`.")
    if not (config.folder / "journal.db").exists():
        federation, catalog = plan_federation(config, Identity.fresh())
        is_masked = config.rounds.secure == "auto" and (not config.rounds.readable or federation.privacy is not None)
        needed = count_needed(config.rules, is_masked)
        return ConfigCheck(False, "", federation.method, catalog.n_items, 0, needed, None, tuple(warnings))
    journal = open_federation(config, is_trial=True)
    try:
        change = publish_catalogue(config, journal, is_trial=True)
        needed = count_needed(config.rules, is_settled(config.rules, journal), journal)
        devices = sum(not device.revoked for device in journal.members.devices())
        if devices < needed:
            warnings.append(f"{devices} devices are enrolled, and a round begins when {needed} are connected.")
        if journal.members.unagreed:
            warnings.append(describe_unagreed(len(journal.members.unagreed)))
        federation = journal.federation
        about = federation.id, federation.method, journal.catalog.n_items, devices, needed, change, tuple(warnings)
    finally:
        journal.close()
    return ConfigCheck(True, *about)


def _is_in_use(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return True
    return False
