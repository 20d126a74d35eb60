"""A trial round: before a federation is founded, its method runs one round of made-up clients through wire and masks.

What cannot run is refused here, with the rule it broke, instead of in the first round on users' devices.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping

import numpy as np

from tacit.errors import ConfigError, TacitError
from tacit.numerics import one_blas_thread
from tacit.privacy.noise import SystemNoise
from tacit.protocols.federated import device_round, server_round
from tacit.protocols.guarantee import made_up_client
from tacit.protocols.secure_aggregation import decode_sum
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.encoding import encode_message
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.local_session import run_session
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.noise_shares import add_noise_share, check_noise_room
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Message, Total
from tacit.wire.catalogue import catalog_bytes, catalog_from, public_catalog
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, model_in, pack, read_request, read_update, unpack, write_request, write_update

CLIENTS, ITEMS = 6, 5  # clients of the trial, and things that each of them did


def try_round(federation: Federation, catalog: Catalog) -> None:
    """Refuse a federation whose method breaks a rule of the contract in a round of made-up clients."""
    known = catalog_from(catalog_bytes(public_catalog(catalog, federation.built)))
    try:
        with one_blas_thread():
            _try(federation, known)
    except ConfigError:
        raise
    except (TacitError, LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        text = error.message if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
        raise _refusal(federation, f"a round of made-up clients ended with: {text}") from error


def _try(federation: Federation, catalog: Catalog) -> None:
    method, key = federation.built, Key(secrets.randbits(64))
    path, spec = federation.path(), method.spec
    first = federation.first_model(catalog, key.child("init"), CLIENTS)
    named = {*spec.downloads, *spec.constants, *spec.server_state}
    if first.keys() != named:
        wrong = ", ".join(sorted(first.keys() ^ named))
        raise _refusal(federation, f"shared arrays that its spec does not name, or names and does not have: {wrong}")
    messages: dict[int, Message] = {}
    shapes = method.shapes(first)
    total = Total.zero(shapes)
    opening = b""
    for number in range(CLIENTS):
        client = _client(number, catalog)
        opening = write_request(federation, Request(0, federation.download(first, number), True))
        request = read_request(federation, opening)
        shared = {**request.shared, **{name: first[name] for name in spec.constants}}
        federation.check_model(request.shared, spec.received(first, np.arange(1)))
        private = dict(method.init(client, catalog, key.child("init")).private)
        given = device_round(path, Model(shared, private), client, key, 0)
        assert given.message is not None
        _check_private(federation, private, given.private)
        messages[number] = (  # what counts as noisy numbers travels under masks only
            read_update(federation, 0, write_update(federation, 0, given.message), shapes, number)
            if federation.guarantee is None
            else given.message
        )
        total.add(messages[number])
    if not spec.client_tables:
        share = path.budget_share(first)
        total = _check_masks(federation, messages, total, model_in(opening), share)
    before = {name: array.copy() for name, array in first.items()}
    after = server_round(path, first, total)
    if any(not np.array_equal(array, first[name]) for name, array in before.items()):
        raise _refusal(federation, "'apply' changes the shared arrays that it is given")
    if after.keys() != first.keys():
        raise _refusal(federation, f"'apply' returns {sorted(after)}, not {sorted(first)}")
    learnt = {name: array for name, array in after.items() if name not in spec.constants}
    if any(not np.array_equal(array, learnt[name]) for name, array in unpack(pack(learnt)).items()):
        raise _refusal(federation, "a shared array does not survive being stored")
    for name in (*spec.downloads, *spec.server_state):
        if after[name].dtype != first[name].dtype:
            raise _refusal(federation, f"'{name}' is {after[name].dtype} after one round, and was {first[name].dtype}")
    for name in spec.constants:
        if not np.array_equal(after[name], first[name]):
            raise _refusal(federation, f"'{name}' is declared constant and has changed")
    scores = method.score(spec.received(after, np.arange(1)), private, client)
    if scores.shape != (1, catalog.n_items) or not np.isfinite(scores).all():
        raise _refusal(federation, f"'score' returns {scores.shape}, or numbers that are not finite")
    for name in spec.downloads:
        if after[name].shape != first[name].shape or not np.isfinite(after[name]).all():
            raise _refusal(federation, f"'{name}' has another shape, or numbers that are none, after one round")


def _client(number: int, catalog: Catalog) -> Clients:
    """Return a made-up client with other items than the one before, where the catalogue has so many."""
    every = made_up_client(catalog.n_items, catalog)
    chosen = np.sort((np.arange(min(ITEMS, max(1, catalog.n_items - 1))) + number) % catalog.n_items)
    items = every.items[chosen]
    return Clients(np.array([number]), np.array([0, len(items)]), items, catalog.n_items, None, chosen * 60)


def _check_private(federation: Federation, before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    """Refuse private arrays that are not those declared, or that a device could not keep."""
    declared = dict(federation.built.spec.private)
    for when, arrays in (("init", before), ("learn", after)):
        seen = {name: str(array.dtype) for name, array in arrays.items()}
        if seen != declared:
            raise _refusal(federation, f"private arrays of '{when}' are {seen}, its spec declares {declared}")
    kept = unpack(pack(after))
    if any(not np.array_equal(kept[name], array) for name, array in after.items()):
        raise _refusal(federation, "a private array does not survive being stored")


def _check_masks(
    federation: Federation, messages: Mapping[int, Message], total: Total, model: bytes, share: float
) -> Total:
    """Add the messages under masks, with the noise of a guarantee, and compare with the plain sum; return the sum."""
    privacy, shapes = federation.guarantee, total.shapes
    secure_config = SecureAggregationConfig(two_stage=False, n_min=2, corrupted=0.0, dropped=0.0)
    device_policy = DevicePolicy(n_min=2, k_min=1, corrupted=0.0, d_min=0, cool_down=0, most_cohorts=None)
    terms = RoundContext(federation.digest.hex(), 0, model, secrets.token_bytes(32)).adding_all(
        shapes, federation.ring, len(messages), secure_config, None if privacy is None else privacy.count_units
    )
    noise = {at: Vector(terms.layout.sizes) for at in messages}
    if privacy is not None:
        check_noise_room(terms.layout, privacy, share, len(messages))
        for shared in noise.values():
            add_noise_share(shared, terms.layout, privacy, share, len(messages), SystemNoise())
            total += decode_sum(shared, terms.layout, shapes, 0)

    def give(at: int) -> Vector:
        vector = encode_message(messages[at], terms.layout)
        vector.add(noise[at].tobytes())
        return vector

    done = run_session(terms, [SecureDevice(Identity.fresh(), device_policy) for _ in messages], give)
    masked = decode_sum(done.total, terms.layout, shapes, len(done.survivors))
    for name, sums in total.sums.items():
        if not np.array_equal(masked.sums[name], sums) or not np.array_equal(masked.counts[name], total.counts[name]):
            raise _refusal(federation, f"the sum of '{name}' under masks is not the plain sum")
    return masked


def _refusal(federation: Federation, why: str) -> ConfigError:
    return ConfigError(
        f"'{federation.method}' cannot run in a federation: {why}.",
        "Check its spec and options; docs/methods/README.md has the contract.",
    )
