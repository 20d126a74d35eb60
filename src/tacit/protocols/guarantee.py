"""What a guarantee of differential privacy needs of a method, in simulations and in federations alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tacit.errors import ConfigError
from tacit.methods.base import Federated
from tacit.privacy.dp import ContributionSpec
from tacit.random import Key
from tacit.types import Array, Catalog, Clients


def made_up_client(n: int, catalog: Catalog, n_clients: int = 1) -> Clients:
    """Return clients who did the first n things of the catalogue, one after the other, and nothing else."""
    items = np.arange(min(n, catalog.n_items), dtype=np.int32)
    every = np.tile(items, n_clients)
    ptr = np.arange(n_clients + 1) * len(items)
    return Clients(np.arange(n_clients), ptr, every, catalog.n_items, None, every.astype(np.int64) * 60)


def first_shared(
    method: Federated, catalog: Catalog, key: Key, n_clients: int = 1
) -> tuple[dict[str, Array], str | None]:
    """Return the shared arrays before the first round, and the name of one that depends on histories, if any does."""
    one, two = (method.init(made_up_client(n, catalog, n_clients), catalog, key).shared for n in (1, 2))
    return dict(one), next((name for name, array in one.items() if not np.array_equal(array, two[name])), None)


def refuse_first_of_data(method: Federated, catalog: Catalog, key: Key, *cohorts: Clients) -> None:
    """Refuse a method whose first shared arrays, or the rows that they have, differ between cohorts of equal size."""
    one, *others = (method.init(clients, catalog, key).shared for clients in cohorts)
    for name, array in one.items():
        if any(other[name].shape != array.shape for other in others):
            raise ConfigError(
                f"The size of '{name}' depends on the histories of clients: which rows carry noise would be a release.",
                "Let it have a row for every item of the catalogue, or choose another method.",
            )
        if any(not np.array_equal(other[name], array) for other in others):
            raise ConfigError(
                f"The first '{name}' depends on the histories of clients: it would be a release without noise.",
                f"Set its value: method.{name}.",
            )


def contribution_spec(method: Federated, participations: int) -> ContributionSpec:
    """Return what the stage must know of a method whose clients are in so many sums at most."""
    spec = method.spec
    return ContributionSpec(spec.counted, spec.bound, spec.rows_repeat, participations, tables=spec.tables)


def has_equal_shares(method: Federated) -> bool:
    """Say whether every sum of a method spends as much of the budget as any other; others plan what each spends."""
    return type(method).budget_share is Federated.budget_share


def tells_items(method: Federated, shared: Mapping[str, Array]) -> bool:
    """Say whether a message is one number for each item of a client, and nothing else: it can be read as bits."""
    spec, shapes = method.spec, method.shapes(shared)
    is_own = spec.item_rows == "own" and len(spec.tables) == len(spec.item_tables) == 1
    return is_own and not (spec.counted or spec.rows_repeat) and all(shape[1:] == (1,) for shape in shapes.values())


def refuse_unaccounted(method: Federated, catalog: Catalog) -> None:
    """Refuse a method that reveals something of clients beside the noisy sums."""
    if method.spec.client_tables:
        raise ConfigError(
            f"Differential privacy cannot hold here: the server reads a row of '{method.spec.client_tables[0]}' from "
            "every client.",
            "Choose another method.",
        )
    if getattr(getattr(method, "config", None), "warm_start", None) is not None:
        raise ConfigError(
            "method.warm_start begins with a model that was learnt without this guarantee.",
            "Remove it, or the stage 'dp'.",
        )
    many = max(1, min(50, catalog.n_items // 2))
    for n_clients, n_items in ((1, 2), (64, many)):  # some sizes depend on a single history, others on many clients
        cohorts = [made_up_client(n, catalog, n_clients) for n in (1, n_items)]
        refuse_first_of_data(method, catalog, Key(0), *cohorts)


def refuse_groups(robust: object, option: str) -> None:
    """Refuse a rule that compares sums of groups; `option` is where it was set."""
    if robust is not None:
        raise ConfigError(
            f"{option} compares sums of groups, and every one of them would need the noise of a whole sum.",
            "Remove it, or the guarantee of differential privacy.",
        )


def refuse_exact_counts(two_stage: bool, option: str) -> None:
    """Refuse secure sums that publish exact counts; `option` is where they were chosen."""
    if two_stage:
        raise ConfigError(
            f"{option} publishes how many clients mention each row, without noise.", f"Set {option}=false."
        )
