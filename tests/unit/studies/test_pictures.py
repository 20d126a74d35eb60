"""Pictures are dealt as chapter 5 says, and clients measure what it says; the classifier has the paper's size."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tacit.data.formats.images import Digits, Faces
from tacit.errors import ConfigError
from tacit.lab.experiments import silent
from tacit.random import Key
from tacit.studies import cnn, pictures, reproduce
from tacit.studies import criteria_published as printed
from tacit.studies.criteria_mnist import DigitStudyConfig
from tacit.studies.digits import Curve, DigitFederation, DigitRun, FederationLog, deal, train_federation

LABELS = np.repeat(np.arange(10, dtype=np.uint8), 60)
HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_iid_parts_are_equal_and_hold_every_picture_once() -> None:
    parts = pictures.iid(LABELS, 20, Key(1))
    assert {len(part) for part in parts} == {30}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    assert pictures.label_diversity(LABELS, parts).min() > 5


def test_two_shards_hold_at_most_a_few_digits() -> None:
    parts = pictures.by_shards(LABELS, 20, Key(1))
    assert {len(part) for part in parts} == {30}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    assert pictures.label_diversity(LABELS, parts).max() <= 4


def test_a_client_is_tested_on_digits_it_has() -> None:
    parts = pictures.by_shards(LABELS, 20, Key(1))
    held = pictures.test_parts(parts, LABELS, LABELS, Key(2))
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(600))
    for mine, test in zip(parts, held, strict=True):
        assert set(LABELS[test]) <= set(LABELS[mine])


@pytest.fixture
def faces() -> Faces:
    rng = np.random.default_rng(0)
    attributes = rng.random((400, 2)) < np.array([0.5, 0.1])
    return Faces(
        np.arange(1, 401), np.sort(rng.integers(0, 30, 400)).astype(np.int32), attributes, ["Smiling", "Blurry"]
    )


def test_celebrities_keep_five_photographs_or_more_and_hold_a_fifth_out(faces: Faces) -> None:
    people = pictures.celebrities(faces, Key(3))
    every = np.concatenate([np.concatenate([p.train, p.test]) for p in people])
    assert len(np.unique(every)) == len(every) <= 200
    for person in people:
        n = len(person.train) + len(person.test)
        assert n >= 5
        assert len(person.test) == n // 5
        assert len(set(faces.identities[np.concatenate([person.train, person.test])])) == 1


def test_clients_measure_balance_and_sharpness(faces: Faces) -> None:
    clients = [np.arange(10), np.arange(10, 40)]
    smiles, blurry = faces.attributes.T
    yes = smiles[:10].sum()
    assert pictures.smile_balance(faces, clients)[0] == pytest.approx(min(yes, 10 - yes) / max(yes, 10 - yes))
    assert pictures.sharp_fraction(faces, clients)[1] == pytest.approx(1 - blurry[10:40].mean())


def test_models_are_averaged_by_weight() -> None:
    models = [{"w": np.array([1.0, 0.0], np.float32)}, {"w": np.array([3.0, 4.0], np.float32)}]
    assert cnn.average_models(models, np.array([0.25, 0.75]))["w"].tolist() == [2.5, 3.0]
    assert cnn.distance_moved(models[0], models[1]) == pytest.approx(np.sqrt(20.0))


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_command_says_how_to_add_it(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"not installed.*torch==2.13.0"):
        reproduce("criteria-mnist", "mnist", quick=True, out=tmp_path)


@pytest.mark.parametrize("judged", ["test", "validation"])
def test_devices_are_judged_by_pictures_they_did_not_learn_from(judged: str) -> None:
    images = np.arange(600, dtype=np.uint16)[:, None, None] * np.ones((1, 2, 2), np.uint16)  # a number each
    made = Digits(images, LABELS, images[:100] + 1000, LABELS[:100])  # type: ignore[arg-type]
    setting = DigitFederation(clients=20, pictures=600, judged=judged)  # type: ignore[arg-type]
    dealt = deal(made, "shards", setting, Key(1))
    learnt = {int(images[i, 0, 0]) for mine in dealt.clients for i in mine}
    assert not learnt & set(dealt.judged_images[:, 0, 0].tolist())
    assert np.array_equal(np.sort(np.concatenate(dealt.own)), np.arange(len(dealt.judged_labels)))
    assert len(dealt.judged_labels) == {"test": 100, "validation": 60}[judged]
    for mine, own in zip(dealt.clients, dealt.own, strict=True):
        assert set(dealt.judged_labels[own]) <= set(LABELS[mine])


def test_rounds_until_a_share_of_devices_reaches_a_target() -> None:
    own = [np.array([0, 1]), np.array([2, 3])]
    rounds = [[0, 0, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]]
    curve = Curve("DS", 42, own, [np.array(right, bool) for right in rounds])
    assert curve.until(1.0, 0.5) == 2
    assert curve.until(1.0, 0.9) == 3
    assert curve.until(0.5, 1.0) == 2
    assert curve.overall == [0.25, 0.75, 1.0, 0.75]
    assert curve.best == 2
    assert Curve("DS", 42, own, [np.zeros(4, bool)]).until(0.5, 0.5) is None


def test_a_study_takes_orders_in_words_and_puts_the_baseline_first() -> None:
    assert DigitStudyConfig.from_options({"orders": ["MW>LD >DS", "LD"]}, "study").orders == (
        "DS",
        "MW > LD > DS",
        "LD",
    )
    assert len(DigitStudyConfig.from_options({"orders": "all"}, "study").orders) == 9
    with pytest.raises(ConfigError, match="no order 'LD > XY'"):
        DigitStudyConfig.from_options({"orders": ["LD > XY"]}, "study")
    with pytest.raises(ConfigError, match=r"no option 'iid\.round'"):
        DigitStudyConfig.from_options({"iid": {"round": 3, "rounds": 3, "learning_rate": 0.1}}, "study")


def test_published_rounds_are_those_of_the_baseline_less_what_is_gained() -> None:
    means = {(order, t): np.mean([g for g in row if g is not None]) for (order, t), row in printed.GAINED.items()}
    assert means["LD", 0.7] == pytest.approx(1.56, abs=0.005)  # the averages are printed, too
    assert means["MW", 0.95] == pytest.approx(-11.89, abs=0.005)
    assert means["MW > LD > DS", 0.95] == pytest.approx(4.67, abs=0.005)
    assert printed.rounds("shards", "MW", 0.95)[-1] == 236
    assert printed.rounds("iid", "MW", 0.9) == (None,) * 9
    assert all(sum(counts) == 10_000 for counts in printed.CONFUSED.values())


@pytest.mark.skipif(not HAS_TORCH, reason="the classifier needs torch, which is an extra (torch==2.13.0)")
def test_the_classifier_has_the_size_of_the_paper_and_learns(tmp_path) -> None:
    assert cnn.DigitCNN(0).n_parameters == 1_663_370
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 20)
    images = (rng.random((200, 28, 28)) * 40).astype(np.uint8)
    images[np.arange(200), labels * 2 + 2] = 255  # a bar whose height is the digit
    made = Digits(images, labels, images, labels)
    setting = DigitFederation(clients=4, asked=4, local_epochs=4, pictures=200)
    run = DigitRun("iid", "LD > MW > DS", 0.1, setting, Key(1))
    whole = train_federation(made, run, 4, FederationLog.of(tmp_path / "whole", run), silent)
    assert whole.accuracy(3).mean() > 0.5
    assert whole.until(0.3, 0.5) is not None
    kept = FederationLog.of(tmp_path / "parts", run)
    train_federation(made, run, 2, kept, silent)
    kept.lines.write_text(kept.lines.read_text() + "a line whose model was not written", encoding="utf-8")
    again = train_federation(made, run, 4, kept, silent)
    assert np.array_equal(again.right, whole.right), "an interrupted study goes on where it stopped"
