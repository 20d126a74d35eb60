"""Which sensitive rows may leave: one keyed coin each."""

from __future__ import annotations

from numba import njit

from tacit.kernels.sampling import GAMMA, U64, lane, mix_word

_UNIT = 2.0**-53


@njit(cache=True, nogil=True, error_model="numpy")
def toss(word, ids, ptr, rows, sensitive, pi, secret, per_item, keep):
    """Fill `keep` [R]: rows that are not sensitive stay; a sensitive one stays if its coin falls below the client's pi.

    `rows` [R] are what each is about. The coin of a row is draw number t of the client's stream for its t-th sensitive
    row, or, `per_item`, the first draw of the item's own lane, so that all rows of an item share it in a round. Rows
    that are sensitive and `secret` [R] never stay.
    """
    for c in range(U64(len(ids))):
        stream = lane(word, ids[c])
        state = stream
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            keep[r] = 1
            if not sensitive[r]:
                continue
            state += GAMMA
            drawn = mix_word(lane(stream, U64(rows[r])) + GAMMA) if per_item else mix_word(state)
            if secret[r] or (drawn >> U64(11)) * _UNIT >= pi[c]:
                keep[r] = 0
