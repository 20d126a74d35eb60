"""Attacks on sums: they must work where nothing stands in their way, and fail where something does."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.one_round import learn_once
from helpers.refusals import refused
from tacit.errors import DevicePolicyError
from tacit.methods.fedncf import FedGMF, FedGMFConfig
from tacit.privacy.meter import auc
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory, check_participants
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.studies.sum_attacks import adjusted_rand, attack_by_linking, difference_sums, link_rows
from tacit.types import Catalog, Clients, Vocabulary

N_PEOPLE, N_ITEMS, SIZE = 60, 900, 12


@pytest.fixture(scope="module")
def people() -> Clients:
    generator = np.random.default_rng(5)
    items = np.concatenate([np.sort(generator.choice(N_ITEMS, SIZE, replace=False)) for _ in range(N_PEOPLE)])
    return Clients(np.arange(N_PEOPLE), np.arange(N_PEOPLE + 1) * SIZE, items.astype(np.int32), N_ITEMS)


def test_the_same_group_with_and_without_a_user_reveals_the_items(people: Clients) -> None:
    """FedNCF, section 3.5.2: fresh negatives blur one round, not fifty."""
    method, target, group = FedGMF(FedGMFConfig()), 3, np.arange(4, 19)
    sums = np.zeros((2, 50, N_ITEMS))
    for side, cohort in enumerate((np.append(target, group), group)):
        for number in range(50):
            touched = method.draw(people.take(cohort), Key(side).child(number))[3]
            sums[side, number] = np.bincount(touched, minlength=N_ITEMS)
    own = np.zeros(N_ITEMS, bool)
    own[people.of(target)] = True
    told = [auc(difference_sums(sums[0, :times], sums[1, :times]), own) for times in (1, 50)]
    assert told[0] < 0.95
    assert told[1] > 0.99
    found = np.argsort(-difference_sums(*sums))[:SIZE]
    assert own[found].mean() > 0.9


def test_device_policies_refuse_it() -> None:
    identities = [number.to_bytes(32, "big") for number in range(20)]
    session = [
        Session.of(
            RoundContext("task", at, bytes(32), bytes(32)).counting(
                {"items": (1, 1)}, len(some), SecureAggregationConfig()
            ),
            some,
        )
        for at, some in enumerate((identities, identities[1:]))
    ]
    history = ParticipationHistory().with_sum(session[0], range(20))
    with refused(DevicePolicyError, ReasonCode.DEVICE_COHORT_TOO_SIMILAR, earlier=0, differ=1):
        check_participants(DevicePolicy(most_cohorts=None), history, session[1], range(19))
    with refused(DevicePolicyError, ReasonCode.DEVICE_OTHER_COHORT, earlier=0):
        check_participants(DevicePolicy(), history, session[1], range(19))


def one_round(people: Clients) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    catalog, cohort = Catalog(Vocabulary(np.arange(N_ITEMS))), people.take(np.arange(15))
    method = FedGMF(FedGMFConfig())
    model = method.init(people, catalog, Key(1)).take(np.arange(15))
    update, _ = learn_once(method, model, cohort, Key(2))
    rows = update.tables["items"]
    owner = np.repeat(np.arange(15), np.diff(rows.ptr))
    return owner, rows.ids.astype(np.int64), rows.values, update.sensitive["items"]


def test_rows_that_stand_alone_are_linked_and_two_stages_show_none(people: Clients) -> None:
    owner, ids, values, positive = one_round(people)
    open_to_all = attack_by_linking(owner, ids, values, positive, least=1, alike=0.95)
    assert open_to_all.alone > 0.2 * open_to_all.touched, "histories so sparse leave many rows to one person"
    assert open_to_all.exposed > 0.1
    hidden = attack_by_linking(owner, ids, values, positive, least=3, alike=0.95)
    assert hidden.alone == 0
    assert hidden.exposed == hidden.agreement == 0.0
    assert hidden.touched == open_to_all.touched


def test_multiples_of_one_vector_are_one_group() -> None:
    generator = np.random.default_rng(2)
    people = np.repeat(np.arange(6), 40)
    vectors = generator.normal(size=(6, 12))
    rows = (generator.normal(size=240)[:, None] * vectors[people]).astype(np.float32)
    assert adjusted_rand(people, link_rows(rows, 0.999)) == 1.0
    noisy = (rows + generator.normal(size=rows.shape)).astype(np.float32)
    assert adjusted_rand(people, link_rows(noisy, 0.999)) < 0.2, "noise of the size of the rows hides whose they are"


def test_agreement_of_groupings() -> None:
    generator = np.random.default_rng(1)
    one = generator.integers(0, 5, 2000)
    assert abs(adjusted_rand(one, generator.permutation(one))) < 0.02
    assert adjusted_rand(one, one + 7) == 1.0
    assert adjusted_rand(one[:1], one[:1]) == 0.0
