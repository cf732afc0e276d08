"""Session windows: Catalyst's plan groups by the times of single rows and marks the key; only Spark's physical plan merges them.

An Aggregate with such a key becomes three nodes: the start of the session of each row, groups by that start, and the
session put together of its start and the last end in the group. So a row that makes a session longer moves no other
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.spark.catalyst.expressions import Json
from penstock.spark.catalyst.placed import Placed, Unsupported, column

_TYPES = {f"struct<start:{kind},end:{kind}>": kind for kind in ("timestamp", "timestamp_ntz")}


def session_key(grouping: Sequence[Json]) -> int | None:
    """The position of the key whose values Spark merges: the first one that is marked."""
    marked = (index for index, key in enumerate(grouping) if key.get("session"))
    return next(marked, None)


def groups(
    rows: plan.Node,
    keys: Sequence[int],
    session: int,
    fields: plan.Fields,
    calls: Sequence[plan.AggregateCall],
) -> plan.Node:
    """The groups of an Aggregate whose key at the position `session` is the session of its rows."""
    other_keys = [key for index, key in enumerate(keys) if index != session]
    used = sorted({*other_keys, *(index for call in calls for index in _reads(call))})
    at = {index: position for position, index in enumerate(used)}
    others = [at[key] for key in other_keys]
    assigned = _assigned(rows, used, keys[session], others)
    start, last_end = len(assigned.fields) - 1, _last_end(assigned)
    moved = [_moved(call, at) for call in calls]
    grouped = plan.Aggregate(
        (
            *(assigned.fields[key] for key in others),
            assigned.fields[start],
            *fields[len(keys) :],
            plan.Field("end", last_end.type),
        ),
        assigned,
        (*others, start),
        (*moved, last_end),
    )
    placed = Placed(grouped, tuple(("k", index) for index in range(len(grouped.fields))))
    columns: list[Expression] = [column(placed, index) for index in range(len(others))]
    columns.insert(session, _session(placed, len(others), fields[session]))
    columns += [column(placed, len(keys) + index) for index in range(len(calls))]
    return plan.Project(fields, grouped, tuple(columns))


def updated(rows: Placed, keys: Sequence[int], session: int) -> Placed:
    """Rows whose column of the session is that of their merged session: what DISTINCT aggregates read."""
    width = len(rows.node.fields)
    others = [key for index, key in enumerate(keys) if index != session]
    assigned = _assigned(rows.node, range(width), keys[session], others)
    start = len(assigned.fields) - 1
    last_end = _last_end(assigned)
    by = (*others, start)
    sessions = plan.Aggregate(
        (*(assigned.fields[key] for key in by), plan.Field("end", last_end.type)), assigned, by, (last_end,)
    )
    same = tuple(range(len(by)))
    joined = plan.Join(
        (*assigned.fields, *sessions.fields), assigned, sessions, "inner", by, same, (True,) * len(by)
    )
    placed = Placed(joined, tuple(("k", index) for index in range(len(joined.fields))))
    columns: list[Expression] = [column(placed, index) for index in range(width)]
    own = rows.node.fields[keys[session]]
    columns[keys[session]] = _session(placed, start, own)
    return Placed(plan.Project(rows.node.fields, joined, tuple(columns)), rows.keys)


def _assigned(rows: plan.Node, used: Sequence[int], session: int, keys: Sequence[int]) -> plan.SessionWindow:
    """Some columns of rows, their own start and end, and the start of their session."""
    struct = rows.fields[session]
    kind = _TYPES.get(struct.type)
    if kind is None:
        raise Unsupported(f"sessions of type {struct.type}")
    source = Column(session, struct.type, struct.nullable, struct.name)
    times = [
        Call("GetStructField", (source,), kind, True, (("name", name), ("ordinal", ordinal)))
        for ordinal, name in enumerate(("start", "end"))
    ]
    fields = (
        *(rows.fields[index] for index in used),
        *(plan.Field(f"{struct.name}.{name}", kind) for name in ("start", "end")),
    )
    own = [Column(index, rows.fields[index].type, rows.fields[index].nullable) for index in used]
    below = plan.Project(fields, rows, (*own, *times))
    width = len(used)
    return plan.SessionWindow(
        (*fields, plan.Field("start", kind)), below, tuple(keys), start=width, end=width + 1
    )


def _last_end(assigned: plan.SessionWindow) -> plan.AggregateCall:
    return plan.AggregateCall("Max", (assigned.end,), assigned.fields[assigned.end].type)


def _session(placed: Placed, start: int, field: plan.Field) -> Expression:
    """The session that begins at the column `start` and ends at the last column; NULL for rows that are in none."""
    first, last = column(placed, start), column(placed, len(placed.keys) - 1)
    names = [Literal(name, "string") for name in ("start", "end")]
    session = Call("CreateNamedStruct", (names[0], first, names[1], last), field.type, nullable=False)
    if not field.nullable:
        return session
    outside = Call("IsNull", (first,), "boolean", nullable=False)
    return Call("If", (outside, Literal(None, field.type), session), field.type)


def _reads(call: plan.AggregateCall) -> tuple[int, ...]:
    return call.args if call.filter is None else (*call.args, call.filter)


def _moved(call: plan.AggregateCall, at: dict[int, int]) -> plan.AggregateCall:
    args = tuple(at[index] for index in call.args)
    return replace(call, args=args, filter=None if call.filter is None else at[call.filter])
