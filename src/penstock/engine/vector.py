"""Vector views: the k rows whose vectors are nearest to a constant one, as a plan of a projection and a top-k.

The front is `VectorViewSpec`; everything that it names is checked here, and turned into columns by position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np

from penstock.data.types import parse
from penstock.engine.definition import spark_parts
from penstock.engine.names import one_of, position, require_comparable
from penstock.errors import ConfigError
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression
from penstock.plan.expression import Literal as Constant

Metric = Literal["cosine", "l2", "dot"]
METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")
INDEXES = ("exact",)
QUERY = "query"

Numbers = tuple[float, ...]

_DTYPES = {"float": np.float32, "double": np.float64}


class VectorInput(Protocol):
    """The source or view of the flow that a vector view searches."""

    @property
    def name(self) -> str:
        """As it was registered."""

    @property
    def fields(self) -> plan.Fields:
        """The columns that it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorViewSpec:
    """What a vector view shows: the `k` rows of `source` whose `embedding` is nearest to `query`.

    `source` is a source or a view, `id` its column that names a row and decides between rows of equal scores, `embedding` one of
    type ARRAY<FLOAT> or ARRAY<DOUBLE>. `query` is a vector, a list of vectors, or a dictionary of vectors by label.
    `metric` is cosine or dot, which give a `score` (the highest is nearest), or l2, which gives a `distance` (the
    lowest is nearest). `payload` are columns to show beside them, as a list or as {name in the view: column};
    `filter` is a condition in SQL over the columns of the source. The only `index` is exact.

    >>> spec = VectorViewSpec(source="docs", id="doc_id", embedding="vec", query=[0.1, 0.9], k=10, payload=["title"])
    >>> spec.metric
    'cosine'
    """

    source: str
    id: str
    embedding: str
    query: Any
    k: int = 10
    metric: Metric = "cosine"
    payload: str | Sequence[str] | Mapping[str, str] = ()
    filter: str | None = None
    index: Mapping[str, Any] = field(default_factory=lambda: {"kind": "exact"})

    @property
    def score(self) -> str:
        """The name of the column with the score."""
        return "distance" if self.metric == "l2" else "score"


# Plans the rows of a relation for which a condition in SQL holds, with the columns at some positions.
Filtered = Callable[[Sequence[int], str], plan.View]


def vector_view(name: str, spec: VectorViewSpec, source: VectorInput, *, filtered: Filtered) -> plan.View:
    """Return the plan of a vector view; ConfigError for what cannot work. `filtered` is called only for a spec with a filter."""
    where = f"view '{name}'"
    _check_options(spec, where)
    payload = _payload(spec.payload)
    columns = [field.name for field in source.fields]
    positions = [
        position(column, columns, of=f"'{source.name}'")
        for column in (spec.id, spec.embedding, *payload.values())
    ]
    require_comparable([source.fields[positions[0]]], of="a vector view")
    queries, label = _queries(spec, _element(source.fields[positions[1]], where), where)
    shown = [*([] if label is None else [QUERY]), spec.id, spec.score, *payload]
    _refuse_twice(shown, where)
    if spec.filter is None:
        scan = plan.Scan(tuple(source.fields[at] for at in positions), source.name, tuple(positions))
        base = plan.View(name, "", scan)
    else:
        base = filtered(positions, spec.filter)
        _refuse_spark(base, where)
    root = _nearest(base.root, spec, queries, label, shown)
    order = (*([] if label is None else [plan.SortKey(0)]), *root.order)
    return replace(base, sql="", root=root, order=order, visible=None, metadata=())


def _nearest(
    rows: plan.Node,
    spec: VectorViewSpec,
    queries: Mapping[Any, Numbers],
    label: str | None,
    names: Sequence[str],
) -> plan.TopK:
    """The first rows by score, for each query, over rows of an id, a vector and the payload."""
    id_, vector, *payload = (
        Column(at, field.type, field.nullable, field.name) for at, field in enumerate(rows.fields)
    )
    if vector.nullable:
        rows = plan.Filter(rows.fields, rows, Call("IsNotNull", (vector,), "boolean", nullable=False))

    def scored(query: Numbers) -> list[Expression]:
        options = (("metric", spec.metric), ("query", query))
        return [id_, Call("VectorScore", (vector, id_), "double", nullable=False, options=options), *payload]

    if label is None:
        (query,) = queries.values()
        expressions = scored(query)
    else:
        projections = [(Constant(tag, label), *scored(query)) for tag, query in queries.items()]
        expressions = list(projections[0])
    fields = tuple(
        plan.Field(name, expression.type, expression.nullable)
        for name, expression in zip(names, expressions, strict=True)
    )
    below: plan.Node = (
        plan.Project(fields, rows, tuple(expressions))
        if label is None
        else plan.Expand(fields, rows, tuple(projections))
    )
    first = 0 if label is None else 1
    order = (
        plan.SortKey(first + 1, descending=spec.metric != "l2", nulls_first=spec.metric == "l2"),
        plan.SortKey(first),
    )
    return plan.TopK(fields, below, tuple(range(first)), order, spec.k)


def _check_options(spec: VectorViewSpec, where: str) -> None:
    one_of("metric", spec.metric, METRICS)
    kind = spec.index.get("kind", "exact")
    one_of("index kind", kind, INDEXES)
    unknown = sorted(set(spec.index) - {"kind"})
    if unknown:
        raise _refusal(f"an exact index has no option '{unknown[0]}'", where, 'write index={"kind": "exact"}')
    if isinstance(spec.k, bool) or not isinstance(spec.k, int) or spec.k < 1:
        raise _refusal(f"k={spec.k!r} is not a number of rows", where, "give a whole number above 0")


def _refusal(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError(message, code="FLOW_OPTION", where=where, hint=hint)


def _payload(payload: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The columns to show, by the names that they have in the view."""
    if isinstance(payload, Mapping):
        return dict(payload)
    return {column: column for column in ([payload] if isinstance(payload, str) else payload)}


def _element(embedding: plan.Field, where: str) -> str:
    """The type of the numbers of a vector."""
    parsed = parse(embedding.type)
    if parsed.kind != "array" or parsed.inner[0] not in _DTYPES:
        raise ConfigError(
            f"column '{embedding.name}' is {embedding.type}; a vector is ARRAY<FLOAT> or ARRAY<DOUBLE>",
            code="FLOW_SCHEMA",
            where=where,
            hint=f"cast it in a view, as in SELECT *, CAST({embedding.name} AS ARRAY<FLOAT>) AS vector, "
            "and name that as the source",
        )
    return parsed.inner[0]


def _queries(spec: VectorViewSpec, element: str, where: str) -> tuple[dict[Any, Numbers], str | None]:
    """The query vectors by label, and the type of the label; None for a single vector, which has none."""
    query, label = _plain(spec.query), None
    if isinstance(spec.query, Mapping):
        tagged, label = {tag: _plain(vector) for tag, vector in spec.query.items()}, "string"
        unnamed = [tag for tag in tagged if not isinstance(tag, str)]
        if unnamed:
            raise _refusal(f"the label {unnamed[0]!r} of a query is not text", where, "use texts as keys")
    elif isinstance(query, list) and any(isinstance(item, list) for item in map(_plain, query)):
        tagged, label = dict(enumerate(map(_plain, query))), "int"
    else:
        tagged = {"": query}
    if not tagged:
        raise _refusal("there is no query vector", where, "write one as in query=[0.1, 0.9]")
    queries = {
        tag: _vector(vector, element, spec.metric, _title(tag), where) for tag, vector in tagged.items()
    }
    widths = sorted({len(vector) for vector in queries.values()})
    if len(widths) > 1:
        raise _refusal(
            f"the query vectors have {' and '.join(map(str, widths))} dimensions",
            where,
            "all are compared with one column, and need as many dimensions as its vectors have",
        )
    return queries, label


def _title(tag: Any) -> str:
    return "the query vector" if tag == "" else f"query vector {tag!r}"


def _plain(vector: Any) -> Any:
    """A vector, or several, as lists; arrays of NumPy, Arrow, pandas, Polars and torch have one of these methods."""
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(vector, method):
            return getattr(vector, method)()
    return list(vector) if isinstance(vector, (tuple, range)) else vector


def _vector(vector: Any, element: str, metric: str, title: str, where: str) -> Numbers:
    """A query vector with the precision of the column that it is compared with."""
    if not isinstance(vector, list) or not all(
        isinstance(number, Real) and not isinstance(number, bool) for number in vector
    ):
        raise _refusal(f"{title} is not a list of numbers", where, "write it as in [0.1, 0.9]")
    if not vector:
        raise _refusal(f"{title} has no dimensions", where, "write it as in [0.1, 0.9]")
    with np.errstate(over="ignore", under="ignore"):
        numbers = np.array([float(number) for number in vector]).astype(_DTYPES[element])
    if not np.isfinite(numbers).all():
        raise _refusal(
            f"{title} has a number that is NaN, infinite or beyond {element.upper()}",
            where,
            "no vector is near to such a one",
        )
    if metric == "cosine" and not numbers.any():
        raise _refusal(
            f"{title} is zero in all dimensions, and has no direction to compare by cosine",
            where,
            "use another vector, or metric='l2' or 'dot'",
        )
    return tuple((numbers.astype(np.float64) + 0.0).tolist())  # -0.0 becomes 0.0


def _refuse_twice(names: Sequence[str], where: str) -> None:
    folded = [name.casefold() for name in names]
    double = next((name for name in names if folded.count(name.casefold()) > 1), None)
    if double is not None:
        raise ConfigError(
            f"the view would have two columns '{double}'",
            code="FLOW_SCHEMA",
            where=where,
            hint=f"give one of them another name: payload={{'other_{double}': ...}}, or in a view that is the source",
        )


def _refuse_spark(base: plan.View, where: str) -> None:
    """ConfigError when a filter needs Spark in ticks, or rows of other tables: a vector view has no text to ask for
    them again."""
    reasons = [part.reason for part in spark_parts(base.root)]
    if base.statics:
        reasons.append(f"the table {base.statics[0]}")
    if reasons:
        raise _refusal(
            f"the filter needs Spark in every tick, for {reasons[0]}",
            where,
            "register a view with the condition, and name it as the source of this one",
        )
