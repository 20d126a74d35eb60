"""Learning on a device: the very round of the simulator, with a cohort of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import ConsentError, DeviceError, DivergedError, MethodError, TacitError
from tacit.field.device.alone import recommend_alone
from tacit.field.device.history import History
from tacit.field.device.membership import Membership
from tacit.field.device.settings import Sharing
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import device_round
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.serving.lists import Recommendation
from tacit.serving.recommender import Recommender
from tacit.types import Array, Clients, Label, Model, Vocabulary
from tacit.updates import Message, Release
from tacit.wire.messages import Request


@dataclass(frozen=True)
class LocalUpdate:
    """The result of a round: a message, and the new private part; none: the private part stays as it was."""

    message: Message
    private: dict[str, Array] | None
    zeros: ReasonCode | None = None  # why the message holds nothing of the history


def learn_locally(
    member: Membership, sharing: Sharing, request: Request, history: History, key: Key, client_id: int, coins: Key
) -> LocalUpdate:
    """Learn from the history what a request asks for, and seal it under the user's settings; store and send nothing."""
    catalog, federation = member.catalog, member.federation
    clients = history.clients(client_id, catalog)
    if not len(clients.items):
        raise ConsentError.because(ReasonCode.EMPTY_HISTORY)
    model = Model(request.shared, private_before(member, request, clients, key))
    with one_blas_thread():
        given = device_round(
            federation.path(sharing.stage(client_id, catalog, coins)), model, clients, key, request.round
        )
    if given.message is None or not given.is_fit.all():
        raise DivergedError.because(ReasonCode.UPDATE_TOO_LARGE)
    return LocalUpdate(given.message, dict(given.private))


def learn_for_sum(
    member: Membership, sharing: Sharing, request: Request, history: History, key: Key, client_id: int, coins: Key
) -> LocalUpdate:
    """Learn for a secure sum. What cannot be learnt or sent becomes an empty message, which adds zeros.

    A device that stopped answering because of what it learnt would reveal something about its history.
    """
    try:
        return learn_locally(member, sharing, request, history, key, client_id, coins)
    except DeviceError:  # its file cannot be read
        raise
    except TacitError as error:
        return empty_update(member, request, client_id, error.code or ReasonCode.DIVERGED)
    except Exception:  # whatever a method's arithmetic raises with this history and this model
        return empty_update(member, request, client_id, ReasonCode.DIVERGED)


def empty_update(member: Membership, request: Request, client_id: int, why: ReasonCode) -> LocalUpdate:
    """Return an update of no rows."""
    ptr, nothing = np.zeros(2, np.int64), np.zeros(1, np.int64)
    tables, marks = {}, {}
    for name, (_, *width) in member.federation.built.shapes(request.shared).items():
        numbers = np.zeros((0, int(np.prod(width, dtype=np.int64))), np.int64)
        tables[name], marks[name] = (ptr, np.zeros(0, np.int32), numbers), np.zeros(0, np.bool_)
    release = Release(nothing, nothing, nothing)
    return LocalUpdate(Message(np.array([client_id]), tables, release, marks), None, why)


def private_before(member: Membership, request: Request, clients: Clients, key: Key) -> dict[str, Array]:
    """Return the private part when a request arrives: that of the last answer, if it was counted."""
    last = member.answer()
    counts = last is not None and last.round == request.counted
    return (member.last_private() if counts else member.private()) or first_private(member, clients, key)


def first_private(member: Membership, clients: Clients, key: Key) -> dict[str, Array]:
    """Return the private part before the first round."""
    return dict(member.federation.built.init(clients, member.catalog, key.child("init")).private)


def recommend(
    member: Membership, history: History, hidden: Sequence[Label], key: Key, client_id: int, n: int
) -> list[Recommendation]:
    """Return the best n items that are neither in the history nor hidden, from the model on this device.

    Before the first model they come from the history, and the categories and popularity of the catalogue, alone.
    """
    last = member.model()
    clients = history.clients(client_id, member.catalog)
    if not len(clients.items) and (last is not None or member.catalog.popularity is None):
        raise MethodError(
            "Your history is empty, and recommendations need one.", "Add items: tacit device history add."
        )
    if last is None:
        items = clients.items.tolist()
        known = [member.catalog.item_ids[item] for item in items]
        return recommend_alone(member.catalog, items, (*known, *hidden), key, n)
    model = Model(last.shared, member.last_private() or member.private() or first_private(member, clients, key))
    clients = history.clients(0, member.catalog)  # of client tables a device has one row, its own
    federation, labels = member.federation, Vocabulary(np.zeros(1, np.int64))
    recommender = Recommender(federation.method, federation.config, model, clients, member.catalog, labels)
    return [found for found in recommender.recommend(0, n + len(hidden)) if found.item not in hidden][:n]
