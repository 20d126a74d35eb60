"""Bytes that were bent on their way, as chance or an adversary would."""

from __future__ import annotations

import numpy as np


def bend(content: bytes, generator: np.random.Generator) -> bytes:
    """Change, cut, lengthen or splice some bytes, once to three times."""
    bent = bytearray(content)
    for _ in range(int(generator.integers(1, 4))):
        way, at = int(generator.integers(6)), int(generator.integers(len(bent) or 1))
        value = int(generator.integers(256))
        if way == 0 and bent:
            bent[at] = value
        elif way == 1 and bent:
            bent[at] ^= 1 << (value & 7)
        elif way == 2:
            bent = bent[:at]
        elif way == 3:
            bent[at:at] = generator.bytes(int(generator.integers(1, 9)))
        elif way == 4:
            del bent[at : at + int(generator.integers(1, 9))]
        else:
            bent[at : at + 4] = (2**32 - 1 - value).to_bytes(4, "little")
    return bytes(bent)
