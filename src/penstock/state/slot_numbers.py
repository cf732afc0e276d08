"""Numbers by slot of any size, for the few slots whose numbers no array can hold."""

from __future__ import annotations

from penstock.state.state import Image, Leaf

Values = tuple[int, ...]


class SlotNumbers(Leaf):
    """Tuples of Python integers by slot; a slot that is not there has zeros."""

    __slots__ = ("_undo", "_values", "_zero")

    def __init__(self, width: int = 1) -> None:
        self._zero: Values = (0,) * width
        self._values: dict[int, Values] = {}
        self._undo: list[tuple[int, Values]] = []

    def __len__(self) -> int:
        return len(self._values)

    def at(self, slot: int) -> Values:
        """The numbers of a slot."""
        return self._values.get(slot, self._zero)

    def slots(self) -> list[int]:
        """The slots whose numbers are not all zero."""
        return list(self._values)

    def put(self, slot: int, values: Values) -> None:
        """Set the numbers of a slot, until `rollback`."""
        self._undo.append((slot, self.at(slot)))
        self._set(slot, values)

    def _set(self, slot: int, values: Values) -> None:
        if any(values):
            self._values[slot] = values
        else:
            self._values.pop(slot, None)

    def commit(self) -> None:
        self._undo.clear()

    def rollback(self) -> None:
        while self._undo:
            self._set(*self._undo[-1])
            self._undo.pop()

    def memory(self) -> int:
        """Bytes of memory, roughly: an integer of this kind has some hundred bytes."""
        return sum(
            64 + sum(28 + value.bit_length() // 8 for value in values) for values in self._values.values()
        )

    def save(self) -> Image:
        rows = [[slot, *map(hex, values)] for slot, values in sorted(self._values.items())]
        return Image(values={"rows": rows})

    def load(self, image: Image) -> None:
        self._undo.clear()
        self._values = {
            slot: tuple(int(value, 16) for value in values) for slot, *values in image.values["rows"]
        }
