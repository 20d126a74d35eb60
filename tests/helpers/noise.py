"""Whether bytes look like noise."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2


def uniform_p(words: np.ndarray) -> float:
    """Return the p-value of chi-square over the 256 values of every byte."""
    seen = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
    expected = seen.sum() / 256
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), 255))
