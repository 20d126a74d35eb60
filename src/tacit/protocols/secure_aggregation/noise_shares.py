"""Shares of noise in a secure sum: every device adds its own to every number of its vector, before the masks.

Noise is added modulo 2^bits, as masks and vectors are. The sum is then exactly the sum of all contributions plus the
sum of all shares, modulo 2^bits: reading it is post-processing, and nothing is cut off. Bounds leave room for the noise
(`check_noise_room`), so that a sum wraps around with a probability below 10^-22 per number.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.errors import RangeError
from tacit.privacy.dp import DifferentialPrivacy
from tacit.privacy.noise import NoiseSource
from tacit.protocols.secure_aggregation.encoding import VectorLayout
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.reasons import ReasonCode

ROOM = 10.0  # standard deviations of a share that a bound has room for


def add_noise_share(
    vector: Vector,
    layout: VectorLayout,
    privacy: DifferentialPrivacy,
    share: float,
    n_asked: int,
    source: NoiseSource,
) -> None:
    """Add one device's noise to every number of a vector, touched or not; `share` of the budget pays for the sum."""
    drawn = privacy.draw(source, sum(layout.sizes), privacy.share_variance(share, n_asked))
    start = 0
    for part in vector.parts:
        part += drawn[start : start + len(part)].astype(np.dtype(f"<i{part.itemsize}")).view(part.dtype)
        start += len(part)


def check_noise_room(layout: VectorLayout, privacy: DifferentialPrivacy, share: float, n_asked: int) -> None:
    """Refuse a sum whose numbers could wrap around: a contribution and its noise must stay within every bound."""
    most = privacy.bound * float(privacy.ring.scale) + ROOM * math.sqrt(privacy.share_variance(share, n_asked))
    for part in layout.segments:
        if not most <= part.bound:
            raise RangeError.because(
                ReasonCode.NOISE_OVERFLOW, table=part.table, cohort=n_asked, bound=part.bound, bits=part.bits
            )
