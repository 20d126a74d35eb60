"""Lines of triples taken apart byte by byte: what is wanted becomes numbers, each label is noted where it is first met.

A label is known by a hash of its bytes (64 bits: among ten million labels two alike are met once in 300,000 files).
Numbers are given in the order of first sight. Lines that are not of the usual form are left to the whole grammar.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
TAB, NEWLINE, RETURN, SPACE = np.uint8(9), np.uint8(10), np.uint8(13), np.uint8(32)
QUOTE, DASH, DOT, LESS, GREATER = np.uint8(34), np.uint8(45), np.uint8(46), np.uint8(60), np.uint8(62)
AT, BACKSLASH, CARET = np.uint8(64), np.uint8(92), np.uint8(94)


class LabelTable(NamedTuple):
    """Labels met so far: their hashes by number, and where each hash is in a table of open places."""

    hashes: NDArray[np.uint64]  # [capacity], the first n are known
    slots: NDArray[np.int32]  # [power of two]: a number, or -1
    n: NDArray[np.int64]  # [1]


def empty_label_table(capacity: int = 1024) -> LabelTable:
    """Return an empty table."""
    size = 1 << int(2 * capacity - 1).bit_length()
    return LabelTable(np.zeros(capacity, np.uint64), np.full(size, -1, np.int32), np.zeros(1, np.int64))


def with_room(known: LabelTable, more: int) -> LabelTable:
    """Return a table of the same labels that has room for so many more."""
    n = int(known.n[0])
    if n + more <= len(known.hashes):
        return known
    larger = empty_label_table(max(n + more, 2 * len(known.hashes)))
    larger.hashes[:n] = known.hashes[:n]
    larger.n[0] = n
    _fill(larger)
    return larger


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(known):
    for number in range(known.n[0]):
        known.slots[_place(known, known.hashes[number])] = number


@njit(inline="always")
def _place(known, value):
    """Return the place of a hash in the table, or the open place where it belongs."""
    last = len(known.slots) - 1
    at = np.int64((value * _MIX) >> _SHIFT) & last
    while known.slots[at] >= 0 and known.hashes[known.slots[at]] != value:
        at = (at + 1) & last
    return at


@njit(inline="always")
def _hash(text, start, end):
    value = _OFFSET
    for i in range(start, end):
        value = (value ^ np.uint64(text[i])) * _PRIME
    return value ^ (value >> _SHIFT)


@njit(inline="always")
def _number(known, value, start, end, first, new):
    """Return the number of a label by its hash; one not known gets the next, and `new` notes where it stands."""
    at = _place(known, value)
    if known.slots[at] < 0:
        number = known.n[0]
        known.slots[at] = number
        known.hashes[number] = value
        known.n[0] = number + 1
        new[number - first, 0] = start
        new[number - first, 1] = end
    return known.slots[at]


@njit(inline="always")
def _until(text, at, stop):
    """Return where a byte stands next, or the end of the line."""
    while text[at] != stop and text[at] != NEWLINE:
        at += 1
    return at


@njit(inline="always")
def _is_tag(byte):
    """A letter, a digit or a dash: what the language of a literal is made of."""
    return (97 <= byte <= 122) or (65 <= byte <= 90) or (48 <= byte <= 57) or byte == DASH


@njit(cache=True, nogil=True, error_model="numpy")
def _spans_nt(text, at, span):
    """Find the three labels of `<head> <relation> <tail> .` or `"tail"`; return whether the line is of that form."""
    if text[at] != LESS:
        return False
    end = _until(text, at + 1, GREATER)
    if text[end] != GREATER or text[end + 1] != SPACE or text[end + 2] != LESS:
        return False
    span[0], span[1], span[2] = at + 1, end, end + 3
    end = _until(text, end + 3, GREATER)
    if text[end] != GREATER or text[end + 1] != SPACE:
        return False
    span[3], span[4] = end, end + 3
    if text[end + 2] == LESS:
        end = _until(text, end + 3, GREATER)
        span[5] = end
        if text[end] != GREATER:
            return False
        end += 1
    elif text[end + 2] == QUOTE:
        end += 3
        while text[end] != QUOTE and text[end] != BACKSLASH and text[end] != NEWLINE:
            end += 1
        span[5] = end
        if text[end] != QUOTE:
            return False
        end += 1
        if text[end] == AT:
            end += 1
            if not _is_tag(text[end]):
                return False
            while _is_tag(text[end]):
                end += 1
        elif text[end] == CARET:
            if text[end + 1] != CARET or text[end + 2] != LESS:
                return False
            end = _until(text, end + 3, GREATER)
            if text[end] != GREATER:
                return False
            end += 1
    else:
        return False
    if text[end] != SPACE or text[end + 1] != DOT:
        return False
    return text[end + 2] == NEWLINE or (text[end + 2] == RETURN and text[end + 3] == NEWLINE)


@njit(cache=True, nogil=True, error_model="numpy")
def _spans_tsv(text, at, span):
    """Find the three fields of a line; return whether there are three."""
    for field in range(3):
        end = _until(text, at, TAB)
        span[2 * field], span[2 * field + 1] = at, end
        if (text[end] == NEWLINE) != (field == 2):
            return False
        at = end + 1
    while span[5] > span[4] and text[span[5] - 1] == RETURN:
        span[5] -= 1
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def parse_statements(text, is_nt, known, marks, everything, triples, new, odd):
    """Number the wanted triples of whole lines; return how many there are, how many odd lines, and how many lines.

    `text` [bytes] ends with a newline. `marks` [numbers]: 1 for heads that are wanted, 2 for relations that are not;
    with `everything` all heads are. Filled are `triples` [3, lines] with numbers, `new` [3 lines, 2] with the places of
    labels that were not known before, and `odd` [lines, 3] with start, end and number of lines of another form.
    """
    n_triples, n_odd, n_lines, at, first = 0, 0, 0, 0, known.n[0]
    span = np.zeros(6, np.int64)
    while at < len(text):
        usual = _spans_nt(text, at, span) if is_nt else _spans_tsv(text, at, span)
        if usual:
            value = _hash(text, span[0], span[1])
            head = known.slots[_place(known, value)]
            if everything or (0 <= head < len(marks) and marks[head] & 1):
                kind = _hash(text, span[2], span[3])
                relation = known.slots[_place(known, kind)]
                if not (0 <= relation < len(marks) and marks[relation] & 2):
                    tail = _hash(text, span[4], span[5])
                    triples[0, n_triples] = _number(known, value, span[0], span[1], first, new)
                    triples[1, n_triples] = _number(known, kind, span[2], span[3], first, new)
                    triples[2, n_triples] = _number(known, tail, span[4], span[5], first, new)
                    n_triples += 1
            at = _until(text, span[5], NEWLINE) + 1
        else:
            end = _until(text, at, NEWLINE)
            odd[n_odd, 0], odd[n_odd, 1], odd[n_odd, 2] = at, end, n_lines
            n_odd += 1
            at = end + 1
        n_lines += 1
    return n_triples, n_odd, n_lines


@njit(cache=True, nogil=True, error_model="numpy")
def number_labels(text, ptr, known, new, numbers):
    """Number the labels text[ptr[i]:ptr[i + 1]]; `new` [labels, 2] notes where those stand that were not known."""
    first = known.n[0]
    for i in range(len(numbers)):
        value = _hash(text, ptr[i], ptr[i + 1])
        numbers[i] = _number(known, value, ptr[i], ptr[i + 1], first, new)


@njit(cache=True, nogil=True, error_model="numpy")
def copy_spans(text, spans):
    """Return the bytes of spans [n, 2] one after the other."""
    total = 0
    for i in range(len(spans)):
        total += spans[i, 1] - spans[i, 0]
    out, at = np.empty(total, np.uint8), 0
    for i in range(len(spans)):
        for j in range(spans[i, 0], spans[i, 1]):
            out[at] = text[j]
            at += 1
    return out
