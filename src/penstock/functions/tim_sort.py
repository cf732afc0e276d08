"""The sort of Java's objects, as a generator of comparisons.

Which pairs a sort compares shows when a comparison raises, gives NULL, or contradicts another one. Java sorts objects with
TimSort, and so the same runs, insertions and gallops happen here. The values are not here: the generator yields pairs
of positions, is sent the sign of each comparison, and returns the positions in order, so that many sorts can go on
side by side.
"""

from __future__ import annotations

from collections.abc import Generator

Comparisons = Generator[tuple[int, int], int, None]
Search = Generator[tuple[int, int], int, int]

_MIN_MERGE = 32
_MIN_GALLOP = 7


class Contradiction(ValueError):
    """A comparison that contradicts earlier ones, in a place where Java finds out."""


def sorted_positions(count: int) -> Generator[tuple[int, int], int, list[int]]:
    """Sort `count` values: yields pairs of positions, takes the sign of their comparison, and returns the order."""
    items = list(range(count))
    yield from _Sort(items).run()
    return items


class _Sort:
    """One sort: the items, and the runs that are waiting to be merged."""

    def __init__(self, items: list[int]) -> None:
        self.items = items
        self.runs: list[tuple[int, int]] = []  # where each begins, and its length
        self.min_gallop = _MIN_GALLOP

    def run(self) -> Comparisons:
        count = len(self.items)
        if count < 2:
            return
        shortest = count if count < _MIN_MERGE else _min_run(count)
        low = 0
        while low < count:
            length = yield from self._count_run(low, count)
            if length < shortest:
                forced = min(count - low, shortest)
                yield from self._insert(low, low + forced, low + length)
                length = forced
            self.runs.append((low, length))
            yield from self._collapse()
            low += length
        while len(self.runs) > 1:
            at = len(self.runs) - 2
            if at > 0 and self.runs[at - 1][1] < self.runs[at + 1][1]:
                at -= 1
            yield from self._merge_at(at)

    def _count_run(self, low: int, high: int) -> Search:
        """The length of the run that begins at `low`; a descending one is reversed."""
        items, end = self.items, low + 1
        if end == high:
            return 1
        descending = (yield items[end], items[low]) < 0
        end += 1
        while end < high and ((yield items[end], items[end - 1]) < 0) == descending:
            end += 1
        if descending:
            items[low:end] = reversed(items[low:end])
        return end - low

    def _insert(self, low: int, high: int, start: int) -> Comparisons:
        """Binary insertion of the items from `start` on into the sorted ones before."""
        items = self.items
        for at in range(max(start, low + 1), high):
            pivot, left, right = items[at], low, at
            while left < right:
                middle = (left + right) // 2
                if (yield pivot, items[middle]) < 0:
                    right = middle
                else:
                    left = middle + 1
            del items[at]
            items.insert(left, pivot)

    def _collapse(self) -> Comparisons:
        runs = self.runs
        while len(runs) > 1:
            at = len(runs) - 2
            lengths = [length for _, length in runs]
            if (at > 0 and lengths[at - 1] <= lengths[at] + lengths[at + 1]) or (
                at > 1 and lengths[at - 2] <= lengths[at] + lengths[at - 1]
            ):
                if lengths[at - 1] < lengths[at + 1]:
                    at -= 1
            elif lengths[at] > lengths[at + 1]:
                return
            yield from self._merge_at(at)

    def _merge_at(self, at: int) -> Comparisons:
        items = self.items
        (begin, length), (other_begin, other_length) = self.runs[at], self.runs[at + 1]
        self.runs[at : at + 2] = [(begin, length + other_length)]
        skipped = yield from _after_equals(items[other_begin], items, begin, length, 0)
        begin, length = begin + skipped, length - skipped
        if length == 0:
            return
        last = items[begin + length - 1]
        other_length = yield from _before_equals(last, items, other_begin, other_length, other_length - 1)
        if other_length == 0:
            return
        if length <= other_length:
            yield from self._merge_low(begin, length, other_begin, other_length)
        else:
            yield from self._merge_high(begin, length, other_begin, other_length)

    def _merge_low(self, begin: int, length: int, other: int, rest: int) -> Comparisons:
        """Merge from the left; the first run, which is copied, is the shorter one, and its last item is the greatest of all."""
        items = self.items
        copied, at, put = items[begin : begin + length], 0, begin
        items[put] = items[other]
        put, other, rest = put + 1, other + 1, rest - 1
        state = _Merge(at, length, other, rest, put)
        if rest and length > 1:
            yield from self._low_loop(state, copied)
        at, length, other, rest, put = state.at, state.length, state.other, state.rest, state.put
        if length == 0:
            raise Contradiction
        if rest == 0:
            items[put : put + length] = copied[at : at + length]
        else:
            items[put : put + rest] = items[other : other + rest]
            items[put + rest] = copied[at]

    def _low_loop(self, state: _Merge, copied: list[int]) -> Comparisons:
        items, gallop = self.items, self.min_gallop
        try:
            while True:
                wins = other_wins = 0
                while (wins | other_wins) < gallop:
                    if (yield items[state.other], copied[state.at]) < 0:
                        wins, other_wins = 0, other_wins + 1
                        if state.take_other(items, items, 1):
                            return
                    else:
                        wins, other_wins = wins + 1, 0
                        if state.take(items, copied, 1):
                            return
                while True:
                    key = items[state.other]
                    wins = yield from _after_equals(key, copied, state.at, state.length, 0)
                    if wins and state.take(items, copied, wins):
                        return
                    if state.take_other(items, items, 1):
                        return
                    key = copied[state.at]
                    other_wins = yield from _before_equals(key, items, state.other, state.rest, 0)
                    if other_wins and state.take_other(items, items, other_wins):
                        return
                    if state.take(items, copied, 1):
                        return
                    gallop -= 1
                    if wins < _MIN_GALLOP and other_wins < _MIN_GALLOP:
                        break
                gallop = max(gallop, 0) + 2
        finally:
            self.min_gallop = max(gallop, 1)

    def _merge_high(self, begin: int, length: int, other: int, rest: int) -> Comparisons:
        """Merge from the right; the second run, which is copied, is the shorter one, and its first item is the least of all."""
        items = self.items
        copied, put = items[other : other + rest], other + rest - 1
        items[put] = items[begin + length - 1]
        # `other` counts the items of the copy that are left, and `rest` those of the first run.
        state = _Merge(begin, length - 1, 0, rest, put - 1)
        if state.length and rest > 1:
            yield from self._high_loop(state, copied)
        length, rest, put = state.length, state.rest, state.put
        if rest == 0:
            raise Contradiction
        if length == 0:
            items[put - rest + 1 : put + 1] = copied[:rest]
        else:
            items[put - length + 1 : put + 1] = items[begin : begin + length]
            items[put - length] = copied[rest - 1]

    def _high_loop(self, state: _Merge, copied: list[int]) -> Comparisons:
        items, gallop, begin = self.items, self.min_gallop, state.at
        try:
            while True:
                wins = other_wins = 0
                while (wins | other_wins) < gallop:
                    if (yield copied[state.rest - 1], items[begin + state.length - 1]) < 0:
                        wins, other_wins = wins + 1, 0
                        if state.take_last(items, begin, 1):
                            return
                    else:
                        wins, other_wins = 0, other_wins + 1
                        if state.take_last_copied(items, copied, 1):
                            return
                while True:
                    key = copied[state.rest - 1]
                    place = yield from _after_equals(key, items, begin, state.length, state.length - 1)
                    wins = state.length - place
                    if wins and state.take_last(items, begin, wins):
                        return
                    if state.take_last_copied(items, copied, 1):
                        return
                    key = items[begin + state.length - 1]
                    place = yield from _before_equals(key, copied, 0, state.rest, state.rest - 1)
                    other_wins = state.rest - place
                    if other_wins and state.take_last_copied(items, copied, other_wins):
                        return
                    if state.take_last(items, begin, 1):
                        return
                    gallop -= 1
                    if wins < _MIN_GALLOP and other_wins < _MIN_GALLOP:
                        break
                gallop = max(gallop, 0) + 2
        finally:
            self.min_gallop = max(gallop, 1)


class _Merge:
    """How far a merge has come: the next item and the number left, of the first run and of the other one, and where to put."""

    __slots__ = ("at", "length", "other", "put", "rest")

    def __init__(self, at: int, length: int, other: int, rest: int, put: int) -> None:
        self.at, self.length, self.other, self.rest, self.put = at, length, other, rest, put

    def take(self, items: list[int], copied: list[int], count: int) -> bool:
        """Put items of the first run; whether the merge ends, because its last one belongs behind everything."""
        items[self.put : self.put + count] = copied[self.at : self.at + count]
        self.put, self.at, self.length = self.put + count, self.at + count, self.length - count
        return self.length <= 1

    def take_other(self, items: list[int], source: list[int], count: int) -> bool:
        """Put items of the other run; whether it has no more."""
        items[self.put : self.put + count] = source[self.other : self.other + count]
        self.put, self.other, self.rest = self.put + count, self.other + count, self.rest - count
        return self.rest == 0

    def take_last(self, items: list[int], begin: int, count: int) -> bool:
        """Put the last items of the first run; whether it has no more."""
        end = begin + self.length
        items[self.put - count + 1 : self.put + 1] = items[end - count : end]
        self.put, self.length = self.put - count, self.length - count
        return self.length == 0

    def take_last_copied(self, items: list[int], copied: list[int], count: int) -> bool:
        """Put the last items of the copied run; whether the merge ends, because its first one belongs before everything."""
        items[self.put - count + 1 : self.put + 1] = copied[self.rest - count : self.rest]
        self.put, self.rest = self.put - count, self.rest - count
        return self.rest <= 1


def _min_run(count: int) -> int:
    odd = 0
    while count >= _MIN_MERGE:
        odd |= count & 1
        count >>= 1
    return count + odd


def _after_equals(key: int, items: list[int], base: int, length: int, hint: int) -> Search:
    """Where a key belongs among sorted items, behind its equals; the search gallops from `hint`."""
    last, offset = 0, 1
    if (yield key, items[base + hint]) < 0:
        most = hint + 1
        while offset < most and (yield key, items[base + hint - offset]) < 0:
            last, offset = offset, 2 * offset + 1
        last, offset = hint - min(offset, most), hint - last
    else:
        most = length - hint
        while offset < most and (yield key, items[base + hint + offset]) >= 0:
            last, offset = offset, 2 * offset + 1
        last, offset = last + hint, min(offset, most) + hint
    last += 1
    while last < offset:
        middle = last + (offset - last) // 2
        if (yield key, items[base + middle]) < 0:
            offset = middle
        else:
            last = middle + 1
    return offset


def _before_equals(key: int, items: list[int], base: int, length: int, hint: int) -> Search:
    """Where a key belongs among sorted items, before its equals; the search gallops from `hint`."""
    last, offset = 0, 1
    if (yield key, items[base + hint]) > 0:
        most = length - hint
        while offset < most and (yield key, items[base + hint + offset]) > 0:
            last, offset = offset, 2 * offset + 1
        last, offset = last + hint, min(offset, most) + hint
    else:
        most = hint + 1
        while offset < most and (yield key, items[base + hint - offset]) <= 0:
            last, offset = offset, 2 * offset + 1
        last, offset = hint - min(offset, most), hint - last
    last += 1
    while last < offset:
        middle = last + (offset - last) // 2
        if (yield key, items[base + middle]) > 0:
            last = middle + 1
        else:
            offset = middle
    return offset
