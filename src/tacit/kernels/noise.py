"""Drawing noise from random words: in which cell of a table a word falls, and which numbers of a block are accepted.

Both give what `np.searchsorted` and whole-array arithmetic would, number by number; `privacy.noise` says what the
tables hold.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.sampling import U64

GUIDE_BITS = 12  # leading bits of a word that a guide knows the first possible cell of


@njit(cache=True, nogil=True, error_model="numpy")
def write_guide(high, guide):
    """Write to `guide` [2^GUIDE_BITS] the first cell in which a word with these leading bits can fall."""
    cell = 0
    for leading in range(guide.size):
        while cell < high.size and high[cell] < U64(leading) << U64(64 - GUIDE_BITS):
            cell += 1
        guide[leading] = cell


@njit(cache=True, nogil=True, error_model="numpy")
def find_cells(high, guide, words, cells):
    """Write to `cells` [n] the first cell whose bound is no smaller than the word; return how many words equal one."""
    n_equal = 0
    for n in range(U64(words.size)):
        word = words[n]
        cell = U64(guide[word >> U64(64 - GUIDE_BITS)])
        while cell < U64(high.size) and high[cell] < word:
            cell += U64(1)
        if cell < U64(high.size) and high[cell] == word:
            n_equal += 1
        cells[n] = cell
    return n_equal


@njit(cache=True, nogil=True, error_model="numpy")
def place_in_blocks(words, first_block, width_bits, surely_below, cells, is_accepted):
    """Turn cells [n] into the numbers that words name in these blocks, and say which are accepted at once.

    The last bits of a word are the place in the block, the first 31 the height: below `surely_below` all are accepted.
    """
    mask = (U64(1) << U64(width_bits)) - U64(1)
    for n in range(U64(words.size)):
        cell, word = cells[n], words[n]
        cells[n] = ((cell + first_block) << width_bits) + np.int64(word & mask)
        is_accepted[n] = np.int64(word >> U64(33)) < surely_below[U64(cell)]
