"""The digit classifier of McMahan et al. (2017) in torch, which is an extra: nothing else in the package needs it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError

Weights = dict[str, NDArray[np.float32]]
TORCH = "torch==2.13.0"
AT_ONCE = 50  # pictures whose layers stay in the cache; their gradients add up to that of the full batch


def torch() -> Any:
    """Return the torch module, or say how to add it."""
    try:
        return import_module("torch")
    except ImportError:
        raise ConfigError(
            "This study needs torch, which is not installed.",
            f"Add the extra: pip install -e '.[torch]' where Tacit's source lies (or {TORCH}).",
        ) from None


class DigitCNN:
    """Two 5x5 convolutions (32, 64 channels) with pooling, 512 units, 10 classes: 1,663,370 parameters.

    Pooling comes before the ReLU: the largest of four is the same before and after it, and so is its gradient. First
    weights are Glorot's, biases 0, as the TensorFlow of the paper has them; torch's own are so small that the first
    steps of a full batch hardly move.
    """

    def __init__(self, seed: int) -> None:
        t = torch()
        t.manual_seed(seed)
        layers = t.nn
        self.net = layers.Sequential(
            layers.Conv2d(1, 32, 5, padding=2),
            layers.MaxPool2d(2),
            layers.ReLU(),
            layers.Conv2d(32, 64, 5, padding=2),
            layers.MaxPool2d(2),
            layers.ReLU(),
            layers.Flatten(),
            layers.Linear(64 * 49, 512),
            layers.ReLU(),
            layers.Linear(512, 10),
        ).to(memory_format=t.channels_last)  # a fifth faster on processors
        for p in self.net.parameters():
            layers.init.zeros_(p) if p.ndim == 1 else layers.init.xavier_uniform_(p)

    @property
    def n_parameters(self) -> int:
        """How many numbers are learnt."""
        return sum(p.numel() for p in self.net.parameters())

    def weights(self) -> Weights:
        """Return copies of all parameters."""
        return {name: p.detach().numpy().copy() for name, p in self.net.named_parameters()}

    def load(self, weights: Weights) -> None:
        """Take parameters over."""
        t = torch()
        with t.no_grad():
            for name, p in self.net.named_parameters():
                p.copy_(t.from_numpy(weights[name]))

    def learn(self, images: NDArray[np.uint8], labels: NDArray[np.uint8], epochs: int, learning_rate: float) -> Weights:
        """Take `epochs` steps of plain gradient descent on all pictures at once; return the new parameters."""
        t = torch()
        optimiser = t.optim.SGD(self.net.parameters(), lr=learning_rate)
        x, y = _pictures(images), t.from_numpy(labels.astype(np.int64))
        for _ in range(epochs):
            optimiser.zero_grad()
            for some, truth in zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True):
                loss = t.nn.functional.cross_entropy(self.net(some), truth, reduction="sum") / len(y)
                loss.backward()
            optimiser.step()
        return self.weights()

    def right(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return for which pictures the most likely class is the true one."""
        with torch().no_grad():
            parts = [self.net(some).argmax(1).numpy() for some in _pictures(images).split(AT_ONCE)]
        return np.asarray(np.concatenate(parts) == labels)


def _pictures(images: NDArray[np.uint8]) -> Any:
    t = torch()
    return t.from_numpy(images.astype(np.float32)[:, None] / 255.0).to(memory_format=t.channels_last)


def distance_moved(before: Weights, after: Weights) -> float:
    """Return how far all parameters together have moved."""
    return float(np.sqrt(sum(float(((after[name] - before[name]) ** 2).sum()) for name in before)))


def average_models(models: list[Weights], weights: NDArray[np.float64]) -> Weights:
    """Return the weighted mean of models (5.3)."""
    return {
        name: np.sum([w * model[name] for model, w in zip(models, weights, strict=True)], axis=0).astype(np.float32)
        for name in models[0]
    }
