"""Joins: equal keys taken out of the condition, the rest as a residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.functions import evaluate
from penstock.functions.argument_order import may_raise
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal, conjunction
from penstock.plan.expression import walk as walk_expression
from penstock.spark.catalyst import filters
from penstock.spark.catalyst.expressions import (
    Json,
    Scope,
    conjuncts,
    is_now,
    nested,
    reads_time,
    references,
    translate,
    walk,
)
from penstock.spark.catalyst.filters import filtered
from penstock.spark.catalyst.placed import (
    Key,
    Placed,
    TranslationContext,
    Unsupported,
    attribute_keys,
    column,
    fields_of,
    prepare,
    project,
    refuse_collated,
    select,
)
from penstock.spark.catalyst.relations import known_or_raise, with_columns

_KINDS: dict[str, plan.JoinKind] = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
# The inputs of which rows without a match are lost, so that a condition may refuse them.
_LOSING = {
    "Inner": (0, 1),
    "Cross": (0, 1),
    "LeftOuter": (1,),
    "RightOuter": (0,),
    "FullOuter": (),
    "LeftSemi": (0, 1),
    "LeftAnti": (1,),
    "ExistenceJoin": (1,),
}


@dataclass(frozen=True, slots=True)
class _JoinInputs:
    """Both inputs of a join, with key columns appended, and the condition taken apart."""

    left: Placed
    right: Placed
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    residual: list[Json]
    null_aware: bool


def join(context: TranslationContext, node: Json, needed: set[int] | None) -> Placed:
    """Translate a join of any kind."""
    kind = node["a"]["joinType"]["p"]
    condition = node["a"].get("condition")
    parts = conjuncts(condition["e"]) if condition else []
    parts = [part for part in parts if not (part["c"] == "Literal" and part["v"] is True)]
    children, parts = _without_null_checks(node["k"], parts, kind)
    used = None
    if needed is not None:
        used = needed.union(*(references(part) for part in parts))
    left, right = (context.plan(child, used) for child in children)
    if kind == "ExistenceJoin":
        return _existence(context, node, _sides(context, left, right, parts, kind))
    if kind == "LeftSingle":
        return _single(context, node, _sides(context, left, right, parts, kind))
    if kind not in _KINDS:
        raise Unsupported(f"the kernel does not know the join type {kind}")
    sides = _sides(context, left, right, parts, kind)
    later: list[Json] = []
    if _KINDS[kind] == "inner":
        scope = _scope_of_both(sides)
        for part in sides.residual:
            expression = translate(part, scope)
            # What may raise for pairs that an earlier part refuses stays behind it.
            if (
                reads_time(part)
                or evaluate.unsupported(expression) is not None
                or (later and may_raise(expression))
            ):
                later.append(part)
        sides = replace(sides, residual=[part for part in sides.residual if part not in later])
    joined = filtered(context, _any_join(context, sides, _KINDS[kind]), later)
    scope = joined.scope
    chosen = []
    for key in (*left.keys, *right.keys):
        if key in scope:
            position, own = scope[key]
            chosen.append((key, own, Column(position, own.type, own.nullable, own.name)))
    return project(joined, chosen)


def may_raise_for_pairs(node: Json) -> bool:
    """Whether a plan has a join whose condition may raise."""
    condition = node["a"].get("condition") if node["c"] == "Join" else None
    if condition and filters.may_raise(condition["e"]):
        return True
    subqueries = (
        item["plan"] for expression in nested(node["a"]) for item in walk(expression) if "plan" in item
    )
    return any(may_raise_for_pairs(child) for child in (*node["k"], *subqueries))


def _without_null_checks(
    children: Sequence[Json], parts: list[Json], kind: str
) -> tuple[list[Json], list[Json]]:
    """The inputs of a join without filters that only say IS NOT NULL of columns without which a key is NULL: these
    say nothing new.

    Where the condition may raise, all filters that only say IS NOT NULL become a part of it, and are asked first. A
    filter of its own would cost the join the arrangement that it shares with others, and Spark infers one for every
    column that the condition needs.
    """
    left, right = ({item[0] for item in child["o"]} for child in children)
    if kind == "LeftAnti" and len(parts) == 1 and _not_in(parts[0], (left, right)) is not None:
        return list(children), parts
    pairs = [
        pair for part in parts if part["c"] == "EqualTo" and (pair := _pair(part, (left, right))) is not None
    ]
    raises = any(map(filters.may_raise, parts))
    inputs, checks = [], []
    for side, child in enumerate(children):
        below, conditions = _null_checks(child) if side in _LOSING.get(kind, ()) else (child, [])
        in_keys = {column["id"] for pair in pairs for column in filters.decisive(pair[side])}
        more = [check for check in conditions if check["k"][0]["id"] not in in_keys]
        stays = bool(more) and not raises
        inputs.append(child if stays else below)
        checks += [] if stays else more
    return inputs, [*checks, *parts]


def _null_checks(node: Json) -> tuple[Json, list[Json]]:
    """A plan without the filter on top of it, if that only says IS NOT NULL of columns, and what it says."""
    if node["c"] == "Project" and all(
        item["e"]["c"] == "AttributeReference" for item in node["a"]["projectList"]
    ):
        below, checks = _null_checks(node["k"][0])
        output = {item[0] for item in node["o"]}
        if checks and all(check["k"][0]["id"] in output for check in checks):
            return {**node, "k": [below]}, checks
    elif node["c"] == "Filter":
        conditions = conjuncts(node["a"]["condition"]["e"])
        if all(map(filters.is_null_check, conditions)):
            return node["k"][0], conditions
    return node, []


def _sides(
    context: TranslationContext, left: Placed, right: Placed, parts: list[Json], kind: str
) -> _JoinInputs:
    pairs: list[tuple[Json, Json, bool]] = []
    residual: list[Json] = []
    null_aware = False
    sides = ({key[1] for key in left.keys if key[0] == "a"}, {key[1] for key in right.keys if key[0] == "a"})
    if kind == "LeftAnti" and len(parts) == 1:
        pair = _not_in(parts[0], sides)
        if pair is not None:
            pairs, null_aware, parts = [(*pair, False)], True, []
    for part in parts:
        equal_pair = _pair(part, sides)
        if equal_pair is None:
            residual.append(part)
        else:
            pairs.append((*equal_pair, part["c"] == "EqualNullSafe"))
    refuse_collated([pair[0] for pair in pairs], "a join")
    left = prepare(context, left, [pair[0] for pair in pairs])
    right = prepare(context, right, [pair[1] for pair in pairs])
    # A scalar subquery or a function of Spark's in the residual must be a column of one side before the join.
    left, right = _residual_columns(context, left, right, residual, sides)
    left_scope, right_scope = left.scope, right.scope
    left_keys = [translate(pair[0], left_scope) for pair in pairs]
    right_keys = [translate(pair[1], right_scope) for pair in pairs]
    names = [f"key_{index}" for index in range(len(pairs))]
    left, left_positions = with_columns(left, left_keys, names)
    right, right_positions = with_columns(right, right_keys, names)
    return _JoinInputs(
        left,
        right,
        tuple(left_positions),
        tuple(right_positions),
        tuple(safe for _, _, safe in pairs),
        residual,
        null_aware,
    )


def _residual_columns(
    context: TranslationContext,
    left: Placed,
    right: Placed,
    residual: list[Json],
    sides: tuple[set[int], set[int]],
) -> tuple[Placed, Placed]:
    for part in residual:
        reads = references(part)
        if reads <= sides[1] and reads:
            right = prepare(context, right, [part])
        elif reads <= sides[0]:
            left = prepare(context, left, [part])
        else:
            for item in walk(part):
                if item["c"] == "ScalarSubquery" and not is_now(item):
                    left = prepare(context, left, [item])
                elif item["c"] == "ScalarSubquery":
                    context.uses_time = True
    return left, right


def _pair(part: Json, sides: tuple[set[int], set[int]]) -> tuple[Json, Json] | None:
    """The two sides of an equality, the left input's first."""
    if part["c"] not in {"EqualTo", "EqualNullSafe"}:
        return None
    first, second = part["k"]
    reads_first, reads_second = references(first), references(second)
    if not reads_first or not reads_second:
        return None
    if reads_first <= sides[0] and reads_second <= sides[1]:
        return first, second
    if reads_first <= sides[1] and reads_second <= sides[0]:
        return second, first
    return None


def _not_in(part: Json, sides: tuple[set[int], set[int]]) -> tuple[Json, Json] | None:
    """The pair of `a = b OR isnull(a = b)`, which is how Catalyst writes NOT IN."""
    if part["c"] != "Or":
        return None
    for equal, null in (part["k"], reversed(part["k"])):
        if equal["c"] == "EqualTo" and null["c"] == "IsNull" and null["k"][0]["c"] == "EqualTo":
            pair, other = _pair(equal, sides), _pair(null["k"][0], sides)
            if (
                pair is not None
                and other is not None
                and _same(pair[0], other[0])
                and _same(pair[1], other[1])
            ):
                return pair
    return None


def _same(left: Json, right: Json) -> bool:
    """Equal expressions, wherever they stand in the plan."""
    bare = [
        {key: value for key, value in item.items() if key not in {"at", "k", "sql"}} for item in (left, right)
    ]
    kids = [item.get("k", []) for item in (left, right)]
    return (
        bare[0] == bare[1]
        and len(kids[0]) == len(kids[1])
        and all(_same(a, b) for a, b in zip(*kids, strict=True))
    )


def _scope_of_both(sides: _JoinInputs) -> Scope:
    width = len(sides.left.node.fields)
    scope = dict(sides.left.scope)
    scope.update({key: (index + width, item) for key, (index, item) in sides.right.scope.items()})
    return scope


def _join(sides: _JoinInputs, kind: plan.JoinKind) -> Placed:
    scope = _scope_of_both(sides)
    residual = conjunction([translate(part, scope) for part in sides.residual]) if sides.residual else None
    if residual is not None:
        known_or_raise(residual, "the join condition")
    left, right = sides.left.node, sides.right.node
    both = kind not in {"semi", "anti"}
    fields = tuple(
        plan.Field(item.name, item.type, item.nullable or kind in {"right", "full"}) for item in left.fields
    )
    keys = sides.left.keys
    if both:
        fields += tuple(
            plan.Field(item.name, item.type, item.nullable or kind in {"left", "full"})
            for item in right.fields
        )
        # A column that both inputs computed for the condition is looked up in the left one.
        keys += tuple(
            key if key not in sides.left.keys else ("r", index) for index, key in enumerate(sides.right.keys)
        )
    joined = plan.Join(
        fields,
        left,
        right,
        kind,
        sides.left_keys,
        sides.right_keys,
        sides.null_safe,
        residual,
        sides.null_aware,
    )
    return Placed(joined, keys)


def _any_join(context: TranslationContext, sides: _JoinInputs, kind: plan.JoinKind) -> Placed:
    """A join; one whose condition moves with time is taken apart, because a join keeps what it has matched.

    The matches are an inner join with a filter behind it, which knows time. Rows without a match are those for which no match
    has the same values in the columns that the condition reads.
    """
    timed = [part for part in sides.residual if reads_time(part)]
    if kind == "inner" or not timed:
        return _join(sides, kind)
    steady = replace(sides, residual=[part for part in sides.residual if part not in timed])
    inner = _join(steady, "inner")
    matched = select(filtered(context, inner, timed), inner.keys)
    read = _columns_read(sides)
    if kind == "semi" or kind == "anti":
        return Placed(_present(sides.left.node, matched.node, kind, read[0]), sides.left.keys)
    left, right = sides.left.node.fields, sides.right.node.fields
    nullable = (kind in {"right", "full"}, kind in {"left", "full"})
    fields = tuple(
        plan.Field(item.name, item.type, item.nullable or loose)
        for side, loose in zip((left, right), nullable, strict=True)
        for item in side
    )
    parts: list[plan.Node] = [replace(matched.node, fields=fields)]
    if kind in {"left", "full"}:
        alone = _present(sides.left.node, matched.node, "anti", read[0])
        parts.append(_padded(fields, alone, 0))
    if kind in {"right", "full"}:
        alone = _present(sides.right.node, matched.node, "anti", read[1], behind=len(left))
        parts.append(_padded(fields, alone, len(left)))
    return Placed(plan.Union(fields, tuple(parts)), inner.keys)


def _columns_read(sides: _JoinInputs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns of each side that decide whether two rows match."""
    scope = _scope_of_both(sides)
    width = len(sides.left.node.fields)
    read = {
        item.index
        for part in sides.residual
        for item in walk_expression(translate(part, scope))
        if isinstance(item, Column)
    }
    left = {index for index in read if index < width} | set(sides.left_keys)
    right = {index - width for index in read if index >= width} | set(sides.right_keys)
    return tuple(sorted(left)), tuple(sorted(right))


def _present(
    own: plan.Node, matched: plan.Node, kind: plan.JoinKind, columns: tuple[int, ...], behind: int = 0
) -> plan.Join:
    """The rows of one side that are among the matches, or are not."""
    fields = tuple(own.fields[index] for index in columns)
    chosen = tuple(
        Column(behind + index, item.type, item.nullable, item.name)
        for index, item in zip(columns, fields, strict=True)
    )
    matched_rows = plan.Project(fields, matched, chosen)
    safe = (True,) * len(columns)
    return plan.Join(own.fields, own, matched_rows, kind, columns, tuple(range(len(columns))), safe)


def _padded(fields: plan.Fields, rows: plan.Node, start: int) -> plan.Node:
    """Rows of one side as rows of the join, the other side NULL."""
    end = start + len(rows.fields)
    expressions = tuple(
        Column(index - start, item.type, item.nullable, item.name)
        if start <= index < end
        else Literal(None, item.type)
        for index, item in enumerate(fields)
    )
    return plan.Project(fields, rows, expressions)


def _existence(context: TranslationContext, node: Json, sides: _JoinInputs) -> Placed:
    """Left rows with a flag that says whether the right side has a match: the matching ones and the others."""
    fields = fields_of(node)
    flagged = []
    for kind, value in (("semi", True), ("anti", False)):
        joined = _any_join(context, sides, "semi" if kind == "semi" else "anti")
        chosen: list[tuple[Key, plan.Field, Expression]] = [
            (key, joined.scope[key][1], column(joined, joined.scope[key][0]))
            for key in attribute_keys(node)[:-1]
        ]
        chosen.append((attribute_keys(node)[-1], fields[-1], Literal(value, "boolean")))
        flagged.append(project(joined, chosen).node)
    return Placed(plan.Union(flagged[0].fields, tuple(flagged)), attribute_keys(node))


def _single(context: TranslationContext, node: Json, sides: _JoinInputs) -> Placed:
    """A correlated scalar subquery: a left join in which a row with more than one match is an error.

    The right side becomes one row per key with a count, and the count is checked behind the join, where only the keys that
    are looked up are seen.
    """
    if sides.residual or not sides.left_keys:
        raise Unsupported("a correlated scalar subquery whose correlation is not an equality")
    right = sides.right
    value_fields = tuple(plan.Field(item.name, item.type) for item in right.node.fields)
    key_fields = tuple(right.node.fields[index] for index in sides.right_keys)
    calls = [
        *(
            plan.AggregateCall("First", (index,), item.type, options=(("ignoreNulls", False),))
            for index, item in enumerate(value_fields)
        ),
        plan.AggregateCall("Count", (), "bigint"),
    ]
    count_field = plan.Field("rows", "bigint", False)
    grouped = plan.Aggregate(
        (*key_fields, *value_fields, count_field), right.node, sides.right_keys, tuple(calls)
    )
    width_left, width_keys = len(sides.left.node.fields), len(key_fields)
    fields = (*sides.left.node.fields, *(plan.Field(f.name, f.type) for f in grouped.fields))
    joined = plan.Join(
        fields,
        sides.left.node,
        grouped,
        "left",
        sides.left_keys,
        tuple(range(width_keys)),
        sides.null_safe,
    )
    placed = Placed(joined, (*sides.left.keys, *(("r", index) for index in range(len(grouped.fields)))))
    count = Column(len(fields) - 1, "bigint")
    too_many = Call(
        "RaiseError",
        (
            Literal("a scalar subquery returned more than one row", "string"),
            *(column(sides.left, index) for index in sides.left_keys),
        ),
        "void",
        options=(("code", "DATA_SCALAR_SUBQUERY"),),
    )
    chosen: list[tuple[Key, plan.Field, Expression]] = []
    for key, item in zip(attribute_keys(node), fields_of(node), strict=True):
        if key in sides.left.keys:
            chosen.append((key, item, column(placed, sides.left.keys.index(key))))
            continue
        index = width_left + width_keys + sides.right.keys.index(key)
        value = Column(index, item.type)
        test = Call("GreaterThan", (count, Literal(1, "bigint")), "boolean")
        chosen.append((key, item, Call("If", (test, too_many, value), item.type)))
    return project(placed, chosen)
