"""Pictures are dealt as chapter 5 says, and clients measure what it says; the classifier has the paper's size."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tacit.data.formats.images import Digits, Faces
from tacit.errors import ConfigError
from tacit.random import Key
from tacit.reproduce import cnn, criteria_mnist, pictures, reproduce

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
    assert cnn.averaged(models, np.array([0.25, 0.75]))["w"].tolist() == [2.5, 3.0]
    assert cnn.moved(models[0], models[1]) == pytest.approx(np.sqrt(20.0))


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_command_says_how_to_add_it(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"not installed.*torch==2.13.0"):
        reproduce("criteria-mnist", "mnist", quick=True, out=tmp_path)


@pytest.mark.skipif(not HAS_TORCH, reason="the classifier needs torch, which is an extra (torch==2.13.0)")
def test_the_classifier_has_the_size_of_the_paper_and_learns() -> None:
    assert cnn.DigitCNN(0).n_parameters == 1_663_370
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 40)
    images = (rng.random((400, 28, 28)) * 40).astype(np.uint8)
    images[np.arange(400), labels * 2 + 2] = 255  # a bar whose height is the digit
    made = Digits(images, labels, images, labels)
    setting = criteria_mnist.Setting(clients=4, asked=4, local_epochs=4, rounds=6, pictures=400)
    curve = criteria_mnist.federated(made, pictures.iid, ("LD", "MW"), setting, Key(1))
    assert curve.accuracy[-1].mean() > 0.5
    assert curve.until(0.3, 0.5) is not None
