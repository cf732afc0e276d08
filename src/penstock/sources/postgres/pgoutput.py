"""Messages of logical replication (pgoutput, version 1) as columns of text: all rows at once, with NumPy and Arrow.

All messages stand in one buffer. The tuple of every row is walked column by column, the same column of all rows in
one step: a byte says what a value is, four bytes how long it is. The values of a column are then slices of the
buffer, which Arrow copies out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.data.operation import DELETE, INSERT, UPDATE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_BEGIN, _COMMIT, _RELATION, _INSERT, _UPDATE, _DELETE, _TRUNCATE = (ord(letter) for letter in "BCRIUDT")
_KEY, _OLD, _NEW = (ord(letter) for letter in "KON")
_TEXT, _UNCHANGED = ord("t"), ord("u")
_NULL = ord("n")
_HEADER = 5
"""The letter of a message about rows, and the number of its relation."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as a relation message describes it."""

    name: str
    oid: int
    modifier: int
    is_identity: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """The shape that the rows of a table have in the messages that follow."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of some messages, in the order of their commits."""

    begins: Integers
    """The place of the first message of each."""
    ends: Integers
    """The place of its commit message."""
    xids: Integers
    end_lsns: Integers
    """The position of the log behind its commit."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in one buffer."""

    data: NDArray[np.uint8]
    """With a few bytes behind the last message, so that a number may be read across its end."""
    starts: Integers
    kinds: NDArray[np.uint8]
    transactions: Transactions

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of one relation with what happened to them, in their order, as texts."""

    operations: pa.Array
    texts: Mapping[str, pa.Array]
    """By the names of the columns that are read; those that the relation does not have are missing."""
    unchanged: Mapping[str, Flags] = field(default_factory=dict)
    """Of columns with such values: where a large value was not touched and is not sent."""
    places: Integers | None = None
    """The message of each row."""


def parse(messages: Sequence[bytes]) -> Messages:
    """Put messages into one buffer, and find the transactions."""
    import numpy as np

    data = np.frombuffer(b"".join(messages) + bytes(16), np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    starts = np.cumsum(lengths) - lengths
    kinds = data[starts] if len(messages) else np.empty(0, np.uint8)
    begins, ends = np.flatnonzero(kinds == _BEGIN), np.flatnonzero(kinds == _COMMIT)
    # A transaction is sent whole, so that these come in pairs.
    begins = begins[: len(ends)]
    transactions = Transactions(
        begins=begins,
        ends=ends,
        xids=_numbers(data, starts[begins] + 17, 4),
        end_lsns=_numbers(data, starts[ends] + 10, 8),
    )
    return Messages(data, starts, kinds, transactions)


def commit_end(message: bytes) -> int:
    """The position of the log behind a commit message."""
    return int.from_bytes(message[10:18])


def in_whole_transactions(pieces: Iterable[Sequence[bytes]]) -> Iterator[list[bytes]]:
    """Give messages that come in pieces so that each piece can be read alone.

    It begins with the relations that were described before, and a transaction that is cut has a begin and an end in
    each of its pieces.
    """
    described: dict[bytes, bytes] = {}
    begun: bytes | None = None
    for piece in pieces:
        messages = [*described.values(), *([] if begun is None else [begun]), *piece]
        for message in piece:
            match message[0]:
                case kind if kind == _RELATION:
                    described[message[1:_HEADER]] = message
                case kind if kind == _BEGIN:
                    begun = message
                case kind if kind == _COMMIT:
                    begun = None
        if begun is not None:
            commit = int.from_bytes(begun[1:9])
            # The true end is a little behind that, and before every later commit.
            messages.append(struct.pack(">cBQQQ", b"C", 0, commit, commit + 1, 0))
        yield messages


def relations(messages: Messages) -> dict[int, RelationMessage]:
    """The relation messages by their places."""
    return {
        int(place): _relation(messages.data[messages.starts[place] :])
        for place in _where(messages.kinds == _RELATION)
    }


def truncates(messages: Messages, oid: int) -> Integers:
    """The places of the messages that say that a relation was emptied."""
    import numpy as np

    places = _where(messages.kinds == _TRUNCATE)
    named = []
    for place in places:
        start = messages.starts[place]
        count = int(_numbers(messages.data, np.array([start + 1]), 4)[0])
        oids = _numbers(messages.data, start + 6 + 4 * np.arange(count), 4)
        if (oids == oid).any():
            named.append(int(place))
    return np.array(named, np.int64)


def rows_of(messages: Messages, oid: int) -> Flags:
    """Which messages are about rows of a relation."""
    import numpy as np

    about = (messages.kinds == _INSERT) | (messages.kinds == _UPDATE) | (messages.kinds == _DELETE)
    about[about] = _numbers(messages.data, messages.starts[about] + 1, 4) == oid
    return np.asarray(about)


def decode(
    messages: Messages,
    places: Integers,
    relation: RelationMessage,
    *,
    columns: Sequence[str],
    key: Sequence[str],
) -> Changes:
    """Return the rows of some messages, all of one shape.

    An update whose key changes is a delete of the old key and an insert of the new row. A value that an update did
    not touch comes from the old row, when the message has it.
    """
    import numpy as np
    import pyarrow as pa

    data, kinds = messages.data, messages.kinds[places]
    marks = messages.starts[places] + _HEADER
    first = _walk(data, marks + 1, relation)
    # Of an update with its old row, or old key, the new row is behind it.
    has_old = (kinds == _UPDATE) & (data[marks] != _NEW)
    second = _walk(data, first.ends[has_old] + 1, relation)

    olds = np.flatnonzero(has_old)
    owner = np.concatenate([np.arange(len(places)), olds])
    order = np.argsort(owner, kind="stable")  # an old row stays before its new one
    tuples = first.joined(second).taken(order)
    owner = owner[order]
    is_second = (order >= len(places))[: len(order)]
    followed = np.append(owner[1:] == owner[:-1], False)  # an old row whose new one comes next

    positions = {column.name: place for place, column in enumerate(relation.columns)}
    texts = {
        name: tuples.texts(data, positions[name])
        for name in dict.fromkeys([*columns, *key])
        if name in positions
    }
    source = {name: np.arange(len(owner)) for name in texts}
    unchanged = {name: tuples.kinds[positions[name]] == _UNCHANGED for name in texts}
    new, old = np.flatnonzero(is_second), np.flatnonzero(followed)
    whole_old = data[marks[owner[old]]] == _OLD
    for name, untouched in unchanged.items():
        from_old = untouched[new] & whole_old
        source[name][new[from_old]] = old[from_old]
        untouched[new[from_old]] = False

    key_changed = np.zeros(len(old), bool)
    for name in key:
        if name in texts:
            still = unchanged[name][new]
            before, after = texts[name].take(pa.array(old)), texts[name].take(pa.array(source[name][new]))
            key_changed |= _differ(before, after) & ~still

    operations = np.full(len(owner), UPDATE, "U1")
    operations[kinds[owner] == _INSERT] = INSERT
    operations[kinds[owner] == _DELETE] = DELETE
    operations[old] = DELETE
    operations[new[key_changed]] = INSERT
    chosen = np.ones(len(owner), bool)
    chosen[old[~key_changed]] = False
    picked = np.flatnonzero(chosen)
    return Changes(
        operations=pa.array(operations[picked], pa.string()),
        texts={name: values.take(pa.array(source[name][picked])) for name, values in texts.items()},
        unchanged={name: flags[picked] for name, flags in unchanged.items() if flags[picked].any()},
        places=places[owner[picked]],
    )


@dataclass(frozen=True, slots=True)
class _Tuples:
    """Rows as places in the buffer: of each column the kind, the start and the length of its values."""

    kinds: list[NDArray[np.uint8]]
    starts: list[Integers]
    lengths: list[Integers]
    ends: Integers

    def joined(self, other: _Tuples) -> _Tuples:
        return self._by_column(lambda mine, theirs: _concatenated(mine, theirs), other)

    def taken(self, order: Integers) -> _Tuples:
        return self._by_column(lambda mine, _: mine[order], self)

    def texts(self, data: NDArray[np.uint8], place: int) -> pa.Array:
        """The values of a column: slices of the buffer, which are copied out by Arrow; NULL where there is none."""
        import numpy as np
        import pyarrow as pa

        kinds, starts, lengths = self.kinds[place], self.starts[place], self.lengths[place]
        # Values and the gaps between them are the elements of one array over the buffer: only every other one is taken.
        offsets = np.empty(2 * len(starts) + 1, np.int64)
        offsets[0:-1:2], offsets[1::2] = starts, starts + lengths
        offsets[-1] = offsets[-2] if len(starts) else 0
        elements = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        values = elements.take(pa.array(np.arange(0, len(offsets) - 1, 2), mask=kinds != _TEXT))
        return values.cast(pa.large_string())

    def _by_column(self, change: Callable[[Any, Any], Any], other: _Tuples) -> _Tuples:
        return _Tuples(
            [change(mine, theirs) for mine, theirs in zip(self.kinds, other.kinds, strict=True)],
            [change(mine, theirs) for mine, theirs in zip(self.starts, other.starts, strict=True)],
            [change(mine, theirs) for mine, theirs in zip(self.lengths, other.lengths, strict=True)],
            change(self.ends, other.ends),
        )


def _walk(data: NDArray[np.uint8], starts: Integers, relation: RelationMessage) -> _Tuples:
    """Find the values of rows that begin at `starts`, with the number of their columns."""
    import numpy as np

    counts = _numbers(data, starts, 2)
    if (counts != len(relation.columns)).any():
        raise ValueError(f"a row has not the {len(relation.columns)} columns of its relation")
    at = starts + 2
    kinds, begins, lengths = [], [], []
    for _ in relation.columns:
        kind = data[at]
        is_text = kind == _TEXT
        length = np.where(is_text, _numbers(data, at + 1, 4), 0)
        kinds.append(kind)
        begins.append(at + np.where(is_text, 5, 1))
        lengths.append(length)
        at = begins[-1] + length
    return _Tuples(kinds, begins, lengths, at)


def _numbers(data: NDArray[np.uint8], places: Integers, size: int) -> Integers:
    """Unsigned numbers of so many bytes, the highest first."""
    import numpy as np

    result = np.zeros(len(places), np.int64)
    for step in range(size):
        result = result << 8 | data[places + step]
    return result


def _relation(data: NDArray[np.uint8]) -> RelationMessage:
    import numpy as np

    def number(at: int, size: int) -> int:
        return int(_numbers(data, np.array([at]), size)[0])

    def text(at: int) -> tuple[str, int]:
        end = at
        while data[end]:
            end += 1
        return bytes(data[at:end]).decode(), end + 1

    schema, at = text(_HEADER)
    name, at = text(at)
    identity, count, at = chr(data[at]), number(at + 1, 2), at + 3
    columns = []
    for _ in range(count):
        column, behind = text(at + 1)
        modifier = number(behind + 4, 4)
        columns.append(
            RelationColumn(
                column, number(behind, 4), modifier - (1 << 32 if modifier >> 31 else 0), bool(data[at] & 1)
            )
        )
        at = behind + 8
    return RelationMessage(number(1, 4), schema or "pg_catalog", name, identity, tuple(columns))


def _differ(before: pa.Array, after: pa.Array) -> Flags:
    import numpy as np
    import pyarrow.compute as pc

    same = pc.fill_null(pc.equal(before, after), False)
    both_null = pc.and_(before.is_null(), after.is_null())
    return np.asarray(pc.invert(pc.or_(same, both_null)))


def _concatenated(mine: Any, theirs: Any) -> Any:
    import numpy as np

    return np.concatenate([mine, theirs])


def _where(flags: Flags) -> Integers:
    import numpy as np

    return np.flatnonzero(flags)
