"""The order of 64-bit words, for a few of them or for many millions.

Sorting numbers is several times as fast as arg-sorting them. So the high bits of each word and its position are
packed into one number and those are sorted; the few words that the missing low bits leave in doubt are put right
afterwards. Many words are first parted by their highest bits: positions within a part are short, more bits of the
words fit beside them, and a part stays in the cache.
"""

from __future__ import annotations

import numpy as np

from penstock.data.arrays import Positions, Words

_PACK_FROM = 2_048
_PART_FROM = 524_288
_PART_BITS = 8
_CHUNK = 32_768  # words looked at together, so that they stay in the cache


def order_words(words: Words) -> tuple[Positions, Words]:
    """The positions that put words in ascending order, equal ones in their order, and the words in that order."""
    count = len(words)
    if count < _PACK_FROM:
        order = np.argsort(words, kind="stable")
        return order, words.take(order)
    if (words[1:] >= words[:-1]).all():
        return np.arange(count), words
    differing = (int(words.max()) ^ int(words.min())).bit_length()
    shared = np.uint64(64 - differing)
    return _packed(words, shared) if count < _PART_FROM else _parted(words, shared)


def _packed(words: Words, shared: np.uint64) -> tuple[Positions, Words]:
    """Sort words whose first `shared` bits are the same."""
    count = len(words)
    bits = np.uint64((count - 1).bit_length())
    low = (np.uint64(1) << bits) - np.uint64(1)
    packed = words << shared
    packed &= ~low
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    order: Positions = (packed & low).view(np.int64)
    ordered = words.take(order)
    descents = np.flatnonzero(ordered[1:] < ordered[:-1])
    if len(descents):
        packed >>= bits
        _repair(order, ordered, packed, descents)
    return order, ordered


def _repair(order: Positions, ordered: Words, high: Words, descents: Positions) -> None:
    """Sort the words again, in place, whose high bits are those of a position where words descend."""
    wrong = np.unique(high[descents])
    if 4 * len(descents) > len(order):
        at = np.arange(len(order))
    else:
        begin, end = np.searchsorted(high, wrong, "left"), np.searchsorted(high, wrong, "right")
        lengths = end - begin
        at = np.arange(int(lengths.sum())) + np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    inner = at[np.argsort(ordered[at], kind="stable")]
    order[at], ordered[at] = order[inner], ordered[inner]


def _parted(words: Words, shared: np.uint64) -> tuple[Positions, Words]:
    """Sort many words, part by part of their first bits after the `shared` ones."""
    part = np.empty(len(words), np.uint8)
    sizes = np.zeros(1 << _PART_BITS, np.int64)
    for start in range(0, len(words), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        part[chunk] = (words[chunk] << shared) >> np.uint64(64 - _PART_BITS)
        sizes += np.bincount(part[chunk], minlength=len(sizes))
    order = np.argsort(part, kind="stable")
    ordered = words.take(order)
    begin = 0
    for end in np.cumsum(sizes).tolist():
        inner, ordered[begin:end] = order_words(ordered[begin:end])
        order[begin:end] = order[begin:end].take(inner)
        begin = end
    return order, ordered
