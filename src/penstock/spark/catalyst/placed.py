"""A translated plan together with what its columns are called in Catalyst's plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import SqlError
from penstock.functions import evaluate
from penstock.functions.argument_order import conditional_arguments
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Lambda
from penstock.spark.catalyst import meaning
from penstock.spark.catalyst.expressions import Json, Scope, is_now, translate, walk

Key = tuple[str, int]

# Aggregates whose answer depends on the order of rows: Catalyst calls them random, the kernel gives them a documented order.
ORDERED_AGGREGATES = {
    "First",
    "Last",
    "AnyValue",
    "CollectList",
    "CollectSet",
    "ListAgg",
    "Mode",
    "MaxBy",
    "MinBy",
}


class Unsupported(Exception):
    """The kernel lacks an operator; the message is the reason that `explain` shows."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan and, for each of its columns, its key in the scope of expressions."""

    node: plan.Node
    keys: tuple[Key, ...]

    @property
    def scope(self) -> Scope:
        return {
            key: (index, column)
            for index, (key, column) in enumerate(zip(self.keys, self.node.fields, strict=True))
        }

    def position(self, attribute: int) -> int:
        return self.keys.index(("a", attribute))


@dataclass(slots=True)
class TranslationContext:
    """What one translation carries: how to translate a child, and what it has found."""

    plan: Callable[[Json, set[int] | None], Placed]
    zone: str = "UTC"  # of the session
    most_levels: int | None = None  # of a recursion
    most_rows: int | None = None
    limits: Mapping[int, int] = field(default_factory=dict)  # place of a recursion -> the LIMIT that ends it
    has_code: bool = False  # the query is a DataFrame, whose functions in Python have no names of their own
    uses_time: bool = False
    shared: dict[int, Json] = field(default_factory=dict)  # CTE id -> its definition
    loops: dict[int, int] = field(default_factory=dict)  # recursion id -> its number in this view


def fields_of(node: Json) -> plan.Fields:
    """The output of a Catalyst node as fields."""
    return tuple(plan.Field(item[1], item[2], item[3]) for item in node["o"])


def attribute_keys(node: Json) -> tuple[Key, ...]:
    """The keys of a Catalyst node's output."""
    return tuple(("a", item[0]) for item in node["o"])


def column(placed: Placed, index: int) -> Column:
    """A reference to a column of a plan."""
    field = placed.node.fields[index]
    return Column(index, field.type, field.nullable, field.name)


def project(placed: Placed, columns: Iterable[tuple[Key, plan.Field, Expression]]) -> Placed:
    """Put a projection on a plan, unless it would change nothing."""
    chosen = list(columns)
    expressions = tuple(expression for _, _, expression in chosen)
    fields = tuple(item for _, item, _ in chosen)
    keys = tuple(key for key, _, _ in chosen)
    same = len(chosen) == len(placed.node.fields) and all(
        isinstance(expression, Column) and expression.index == index
        for index, expression in enumerate(expressions)
    )
    if same:
        return Placed(replace(placed.node, fields=fields), keys)
    return Placed(plan.Project(fields, placed.node, expressions), keys)


def select(placed: Placed, keys: Sequence[Key], fields: plan.Fields | None = None) -> Placed:
    """Return the columns with the given keys, in their order."""
    if tuple(keys) == placed.keys and fields is None:
        return placed
    scope = placed.scope
    chosen = []
    for index, key in enumerate(keys):
        position, own = scope[key]
        named = own if fields is None else plan.Field(fields[index].name, own.type, own.nullable)
        chosen.append((key, named, Column(position, own.type, own.nullable, own.name)))
    return project(placed, chosen)


def prepare(
    context: TranslationContext,
    placed: Placed,
    expressions: Iterable[Json],
    *,
    where: Sequence[int | None] | None = None,
) -> Placed:
    """Add the columns that expressions need and the kernel cannot compute: scalar subqueries and Spark's own functions.

    `where` has, per expression, the boolean column on whose TRUE rows alone it counts.
    """
    wanted = list(expressions)
    for expression in wanted:
        for item in walk(expression):
            if item["c"] == "ScalarSubquery":
                if is_now(item):
                    context.uses_time = True
                elif ("s", item["id"]) not in placed.keys:
                    placed = _with_subquery(context, placed, item)
    hoisted: list[tuple[Json, str]] = []
    guards: list[int | None] = []
    for expression, guard in zip(wanted, where or [None] * len(wanted), strict=True):
        _unknown(expression, placed.scope, None, hoisted)
        hoisted = _with_bytes_as_text(expression, hoisted)
        guards += [guard] * (len(hoisted) - len(guards))
    for part, part_guards in _by_row_first(placed, hoisted, guards):
        placed = _with_spark(context, placed, part, part_guards)
    return placed


def _by_row_first(
    placed: Placed, hoisted: list[tuple[Json, str]], guards: list[int | None]
) -> Iterator[tuple[list[tuple[Json, str]], list[int | None]]]:
    """The expressions that the kernel evaluates for all but some rows, then the others, with their guards."""
    are_by_row = [_is_by_row(item, placed.scope) for item, _ in hoisted]
    for wanted in (True, False):
        chosen = [index for index, is_by_row in enumerate(are_by_row) if is_by_row is wanted]
        if chosen:
            yield [hoisted[index] for index in chosen], [guards[index] for index in chosen]


def _is_by_row(item: Json, scope: Scope) -> bool:
    reads_bytes = any(map(_is_bytes_as_text, walk(item)))
    return not reads_bytes and evaluate.only_by_row(translate(item, scope))


def single(context: TranslationContext, item: Json) -> plan.Single:
    """The one-row plan of a scalar subquery."""
    sub = context.plan(item["plan"], None)
    sub = select(sub, attribute_keys(item["plan"])[:1])
    fields = (plan.Field(sub.node.fields[0].name, item["t"]),)
    return plan.Single(fields, sub.node)


def _with_subquery(context: TranslationContext, placed: Placed, item: Json) -> Placed:
    value = single(context, item)
    joined = plan.Join(
        (*placed.node.fields, *value.fields), placed.node, value, "inner", (), (), (), residual=None
    )
    return Placed(joined, (*placed.keys, ("s", item["id"])))


def _unknown(item: Json, scope: Scope, lazy_root: Json | None, unsupported: list[tuple[Json, str]]) -> None:
    """Collect the outermost expressions that the kernel does not know.

    One that some rows do not reach (a branch of CASE, the right side of AND, what is added to a NULL) is left to
    Spark with the whole expression around it, because evaluated alone it could fail on those rows.
    """
    if ("x", item["at"]) in scope or item["c"] in {"AttributeReference", "Literal", "ScalarSubquery"}:
        return
    refuse_random(item)
    if any(item is seen for seen, _ in unsupported):
        return
    expression = translate(item, scope)
    if isinstance(expression, Call):
        # A lambda is evaluated where its elements are: what it lacks, the function around it lacks.
        bodies = (argument for argument in expression.args if isinstance(argument, Lambda))
        reasons = (evaluate.reason(expression), *map(evaluate.unsupported, bodies))
        why = next((why for why in reasons if why is not None), None)
        if why is not None:
            unsupported.append((lazy_root or item, why))
            return
    children: list[Json] = item.get("k", [])
    conditional = conditional_arguments(item["c"], [child.get("n", True) for child in children])
    for child, is_conditional in zip(children, conditional, strict=True):
        if child["c"] != "LambdaFunction":
            _unknown(child, scope, (lazy_root or item) if is_conditional else lazy_root, unsupported)


def _with_bytes_as_text(expression: Json, hoisted: list[tuple[Json, str]]) -> list[tuple[Json, str]]:
    """Leave to Spark the whole of an expression that reads bytes as text: its functions take bytes that are no UTF-8,
    Arrow's do not."""
    inside = {item["at"] for item in walk(expression)}
    reason = next(
        (why for item, why in hoisted if item["at"] in inside and any(map(_is_bytes_as_text, walk(item)))),
        None,
    )
    if reason is None:
        return hoisted
    unaliased = expression["k"][0] if expression["c"] == "Alias" else expression
    return [*((item, why) for item, why in hoisted if item["at"] not in inside), (unaliased, reason)]


def _is_bytes_as_text(item: Json) -> bool:
    return (
        item["c"] == "Cast"
        and str(item.get("t", "")).startswith("string")
        and item["k"][0].get("t") == "binary"
    )


def refuse_collated(keys: Iterable[Json], what: str) -> None:
    """Leave to Spark what compares text by a collation, which the kernel would compare by its bytes."""
    for key in keys:
        if "collate" in key.get("t", ""):
            raise Unsupported(f"{what} by the collation of {key['t']}")


def refuse_random(item: Json) -> None:
    """Refuse a function that gives another answer each time it is asked."""
    _refuse_random_vector(item)
    if not item.get("random") or any(child.get("random") for child in item.get("k", ())):
        return
    if item["c"] in ORDERED_AGGREGATES:
        return
    shown = item.get("sql", item["c"])
    if item["c"] == "PythonUDTF":
        raise SqlError(
            f"the view uses {shown}, a table function that may give another answer every time",
            code="SQL_NONDETERMINISTIC",
            hint="if it does not, say so: register it with .asDeterministic()",
        )
    raise SqlError(
        f"the view uses {shown}, which gives another answer every time; a view must give the same rows for the same input",
        code="SQL_NONDETERMINISTIC",
        hint="compute it before feeding, or use a column; now() and current_date are allowed, they are the tick's time",
    )


def _refuse_random_vector(item: Json) -> None:
    """Refuse aes_encrypt with an initialization vector that Spark draws for each row, although Catalyst calls it
    deterministic."""
    if item["c"] != "ExpressionImplUtils.aesEncrypt":
        return
    mode, vector = item["k"][2], item["k"][4]
    without_vector = mode["c"] == "Literal" and str(mode["v"]).upper() == "ECB"
    if without_vector or (vector["c"] == "Literal" and vector["v"]):
        return
    raise SqlError(
        "the view uses aes_encrypt with a random initialization vector, which gives another answer every time; "
        "a view must give the same rows for the same input",
        code="SQL_NONDETERMINISTIC",
        hint="encrypt before feeding, give a constant vector (the fifth argument), or use the mode 'ECB'",
    )


def _with_spark(
    context: TranslationContext, placed: Placed, hoisted: list[tuple[Json, str]], guards: list[int | None]
) -> Placed:
    unique: dict[int, tuple[Json, str]] = {item["at"]: (item, why) for item, why in hoisted}
    where = {item["at"]: guard for (item, _), guard in zip(hoisted, guards, strict=True)}
    fields = list(placed.node.fields)
    bindings = []
    for item, _ in unique.values():
        bindings.append(_bindings(item, placed.scope))
        fields.append(plan.Field(f"spark_{item['at']}", item["t"], item.get("n", True)))
    reasons = dict.fromkeys(why for _, why in unique.values())
    items = [item for item, _ in unique.values()]
    is_by_row = all(_is_by_row(item, placed.scope) for item in items)
    own: dict[str, Any] = (
        {"expressions": tuple(translate(item, placed.scope) for item in items)} if is_by_row else {}
    )
    node = (plan.KernelFirst if is_by_row else plan.Spark)(
        tuple(fields),
        (placed.node,),
        tuple(unique),
        "Project",
        stateless=True,
        reason="; ".join(reasons),
        bindings=tuple(bindings),
        where=tuple(where.values()) if any(guard is not None for guard in guards) else (),
        meaning=meaning.of_expressions(items, bindings, code=context.has_code),
        **own,
    )
    return Placed(node, (*placed.keys, *(("x", place) for place in unique)))


def asks_spark(before: Placed, after: Placed) -> bool:
    """Say whether what `prepare` added has a function of Spark's in it."""
    return any(key[0] == "x" for key in after.keys[len(before.keys) :])


def _bindings(item: Json, scope: Scope) -> tuple[tuple[int, int], ...]:
    """The places inside an expression that are columns of the input: attributes, subqueries, the time."""
    bindings: list[tuple[int, int]] = []
    for leaf in walk(item):
        if leaf["c"] == "AttributeReference":
            bindings.append((leaf["at"], scope[("a", leaf["id"])][0]))
        elif leaf["c"] == "ScalarSubquery":
            bindings.append((leaf["at"], -1 if is_now(leaf) else scope[("s", leaf["id"])][0]))
    return tuple(bindings)
