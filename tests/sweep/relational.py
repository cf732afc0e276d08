"""Functions that make rows of rows: aggregates, generators and table functions, each as a whole query next to Spark's batch query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from golden import canonical
from golden.spark_answer import settings
from penstock.plan.explain import Explanation
from penstock.spark.errors import translate
from sweep.call import GROUPS, Call, Table
from sweep.kinds import SETTINGS
from sweep.outcome import Outcome, Verdict
from sweep.scalar import shown
from sweep.template import call_of

# Aggregates whose answer depends on the order of rows or breaks ties by it: all rows of a group have the same values.
BY_ORDER = frozenset(
    {
        *("first", "first_value", "last", "last_value", "any_value", "mode", "max_by", "min_by"),
        *("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "histogram_numeric"),
    }
)
# What makes answers comparable that are the same in another order.
SORTED = {
    **dict.fromkeys(("collect_list", "collect_set", "array_agg"), "sort_array({})"),
    **dict.fromkeys(("listagg", "string_agg"), "sort_array(split(hex({}), ''))"),
}
# Sums of doubles and what is made of them: Spark rounds at every addition, a view once.
ROUNDED = frozenset(
    {
        *(
            "sum",
            "try_sum",
            "avg",
            "mean",
            "try_avg",
            "skewness",
            "kurtosis",
            "corr",
            "covar_pop",
            "covar_samp",
        ),
        *("std", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"),
        *(
            "regr_avgx",
            "regr_avgy",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
        ),
    }
)
# Generated code takes longer to compile than to run over a few rows; arguments are columns, whose order of evaluation changes nothing.
INTERPRETED = {
    **SETTINGS,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
RELATION = "sweep_table"
_ORDERS = 4  # in which rows are shown to Spark when its answer and the view's differ


@dataclass(frozen=True, slots=True)
class Query:
    """A query over `RELATION` for some calls; `columns` says how many of its columns each call has."""

    calls: tuple[Call, ...]
    sql: str
    table: Table
    loose: bool  # doubles are compared within tolerance


def aggregates(
    session: ps.Session, calls: Sequence[Call], constants: dict[str, dict[str, Any]], *, rows: int, full: bool
) -> Iterator[Outcome]:
    """Compare the calls of one aggregate function, with groups and FILTER, and with DISTINCT where Spark takes it."""
    name = calls[0].function
    table = Table(rows, constants, tame=True, by_group=name in BY_ORDER)
    texts = {call: table.text(call) for call in calls}
    with settings(session.spark, INTERPRETED):
        _show(session, table.rows(), table)
        filtered = {
            text: _analyses(session, _filtered(texts[call]))
            for call in calls
            for text in [call.template.text]
        }

        def grouped(some: Sequence[Call]) -> str:
            items = [f"{_item(call, texts[call])} AS a{index}" for index, call in enumerate(some)]
            items += [
                f"{_item(call, _filtered(texts[call]))} AS b{index}"
                for index, call in enumerate(some)
                if filtered[call.template.text]
            ]
            return f"SELECT g, {', '.join(items)} FROM {RELATION} GROUP BY g"

        loose = name in ROUNDED
        yield from _compared(session, Query(tuple(calls), grouped(calls), table, loose), grouped)
        for call in calls if full else calls[:1]:
            distinct = _distinct(texts[call], name)
            if distinct and _analyses(session, distinct):
                sql = f"SELECT {_item(call, distinct)} AS a FROM {RELATION}"
                yield from _compared(session, Query((call,), sql, table, loose), None)


def _item(call: Call, text: str) -> str:
    return shown(call.type, SORTED.get(call.function, "{}").format(text))


def _filtered(text: str) -> str:
    """The aggregate with a FILTER; what stands around it stays outside."""
    return f"{text} FILTER (WHERE id % 3 <> 0)" if text.endswith(")") else text


def _distinct(text: str, name: str) -> str | None:
    """The aggregate with DISTINCT, None where there is no such call in the text."""
    span = call_of(text, name)
    if span is None or text[span[0] : span[1]].upper().startswith("DISTINCT"):
        return None
    return f"{text[: span[0]]}DISTINCT {text[span[0] :]}"


def generators(
    session: ps.Session, calls: Sequence[Call], constants: dict[str, dict[str, Any]], *, rows: int
) -> Iterator[Outcome]:
    """Compare generators: in the SELECT list, and as LATERAL VIEW OUTER."""
    with settings(session.spark, INTERPRETED):
        for call in calls:
            table = Table(rows, constants)
            text = table.text(call)
            for sql in (
                f"SELECT id, {text} FROM {RELATION}",
                f"SELECT id, x.* FROM {RELATION} LATERAL VIEW OUTER {text} x",
            ):
                _show(session, table.rows(), table)
                if _accepted(session, sql):
                    yield from _compared(session, Query((call,), sql, table, False), None)


def tables(session: ps.Session, calls: Sequence[tuple[Call, str]], *, rows: int) -> Iterator[Outcome]:
    """Compare whole queries with table functions."""
    with settings(session.spark, INTERPRETED):
        for call, sql in calls:
            table = Table(rows, {})
            table.text(call)
            yield from _compared(session, Query((call,), sql, table, False), None)


def _analyses(session: ps.Session, item: str) -> bool:
    return _accepted(session, f"SELECT {item} FROM {RELATION}")


def _accepted(session: ps.Session, sql: str) -> bool:
    try:
        session.spark.sql(sql)
    except Exception:
        return False
    return True


def _show(session: ps.Session, rows: pa.Table, table: Table) -> None:
    if rows.num_rows == 0:  # without chunks, PySpark does not take it
        rows = pa.table([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
    session.spark.createDataFrame(rows, schema=table.ddl()).createOrReplaceTempView(RELATION)


def _batch(session: ps.Session, query: Query, rows: pa.Table) -> pa.Table | ps.PenstockError:
    _show(session, rows, query.table)
    try:
        return session.spark.sql(query.sql).toArrow()
    except Exception as error:
        return translate(error)


def _compared(session: ps.Session, query: Query, again: Any) -> Iterator[Outcome]:
    rows = query.table.rows()
    want = _batch(session, query, rows)
    if isinstance(want, ps.PenstockError):
        if len(query.calls) > 1:
            for call in query.calls:
                yield from _compared(session, Query((call,), again([call]), query.table, query.loose), again)
            return
        yield _raising(session, query, rows, want)
        return
    flow = ps.IncrementalFlow(session)
    flow.register_source(RELATION, query.table.ddl())
    try:
        explanation = flow.register_view("v", query.sql)
    except Exception as error:
        if len(query.calls) > 1:
            for call in query.calls:
                yield from _compared(session, Query((call,), again([call]), query.table, query.loose), again)
        else:
            yield refusal(query.calls[0], error)
        return
    explained = dict.fromkeys(query.calls, explanation)
    if len(query.calls) > 1 and explanation.tier != "kernel":
        for call in query.calls:
            explained[call] = flow.register_view("alone", again([call]))
            flow.drop_view("alone")
    detail = _played(session, flow, query, rows, want)
    if detail and len(query.calls) > 1:
        for call in query.calls:
            yield from _compared(session, Query((call,), again([call]), query.table, query.loose), again)
        return
    verdict: Verdict = "right"
    if detail:
        by_order = "view raises" not in detail and (
            _depends_on_order(session, query, rows, want, flow.snapshot("v"))
            or _overflow_passes(session, query, rows, flow.snapshot("v"))
        )
        verdict = "by order" if by_order else "WRONG"
    for call, found in explained.items():
        yield Outcome(call, found.tier, verdict, _reason(found), detail=detail or "")


def _depends_on_order(
    session: ps.Session, query: Query, rows: pa.Table, want: pa.Table, got: pa.Table
) -> bool:
    """Whether Spark answers otherwise, in each row in which the view differs, when the same rows come in another order."""
    loose = _loose(query, want)
    ours = canonical.rows(got)
    open_rows = [
        row
        for row in canonical.rows(want)
        if not any(canonical.close([row], [other], loose) for other in ours)
    ]
    for seed in range(_ORDERS):
        order = list(range(rows.num_rows))
        Random(seed).shuffle(order)
        answer = _batch(session, query, rows.take(order))
        if isinstance(answer, ps.PenstockError):
            return True
        seen = set(map(canonical.text, canonical.rows(answer)))
        open_rows = [row for row in open_rows if canonical.text(row) in seen]
    return not open_rows


def _overflow_passes(session: ps.Session, query: Query, rows: pa.Table, got: pa.Table) -> bool:
    """Whether the view has what Spark answers over wider numbers: then Spark's sum leaves its range and would come back."""
    wide = "decimal(38,0)"
    types = {name: wide if kind == "bigint" else kind for name, kind in query.table.types().items()}
    columns = [
        column.cast(pa.decimal128(38, 0)) if types[name] == wide else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    frame = session.spark.createDataFrame(
        pa.table(columns, names=rows.column_names),
        schema=", ".join(f"{n} {kind}" for n, kind in types.items()),
    )
    frame.createOrReplaceTempView(RELATION)
    try:
        answer = session.spark.sql(query.sql).toArrow()
    except Exception:
        return False
    # What lies outside for good is NULL, as try_sum has it; where `sum` raises, the view has no such row.
    rows_in_range = [
        [
            None if isinstance(value, Decimal) and not -(2**63) <= value < 2**63 else value
            for value in row.values()
        ]
        for row in answer.to_pylist()
    ]
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows_in_range, strict=True), got.schema, strict=True)
    ]
    return canonical.rows(pa.table(columns, schema=got.schema)) == canonical.rows(got)


def _loose(query: Query, want: pa.Table) -> tuple[int, ...]:
    return tuple(
        index for index, field in enumerate(want.schema) if query.loose and pa.types.is_floating(field.type)
    )


def _reason(explanation: Explanation) -> str:
    return "; ".join(dict.fromkeys(line.reason for line in explanation.operators if line.reason))


def refusal(call: Call, error: Exception) -> Outcome:
    """The outcome of a view that was not accepted."""
    if isinstance(error, ps.PenstockError) and not isinstance(error, ps.InternalError):
        return Outcome(call, "", "refused", error.message.split("\n")[0], error.code)
    return Outcome(call, "", "WRONG", detail=f"registration: {error!r}"[:400])


def _played(
    session: ps.Session, flow: ps.IncrementalFlow, query: Query, rows: pa.Table, want: pa.Table
) -> str | None:
    """Feed the rows in three ticks, with noise that comes and goes; return what differs from Spark's answer."""
    half = rows.num_rows // 2
    first, second = rows.slice(0, half), rows.slice(half)
    noise = _moved(rows.slice(half, 9), 100_000)
    noise = noise.set_column(1, noise.schema.field(1), pa.array([99] * noise.num_rows, pa.int32()))
    strays = _moved(rows.slice(half, 4), 200_000)
    waiting: list[tuple[pa.Table, int]] = []
    for changes, present in (
        ([(first, 1), (noise, 1), (strays, 1)], [first, noise, strays]),
        ([(noise, -1), (second, 1)], [rows, strays]),
        ([(strays, -1)], [rows]),
    ):
        waiting += changes
        try:
            _tick(flow, waiting)
        except Exception as error:
            between = _batch(session, query, pa.concat_tables(present))
            if getattr(error, "code", "") != getattr(between, "code", None):
                return f"{query.sql}: the view raises {error!r}"[:600]
            continue  # as Spark would: the tick has not happened, and its rows come with the next one
        waiting = []
    got = flow.snapshot("v")
    if canonical.schema(got.schema) != canonical.schema(want.schema):
        return f"{query.sql}: schema {canonical.schema(got.schema)}, Spark {canonical.schema(want.schema)}"
    loose = _loose(query, want)
    ours, theirs = canonical.rows(got), canonical.rows(want)
    if canonical.close(ours, theirs, loose):
        return None
    apart = next(
        ((one, other) for one, other in zip(ours, theirs, strict=False) if one != other),
        (len(ours), len(theirs)),
    )
    return f"{query.sql}: view {apart[0]}, Spark {apart[1]}"


def _moved(rows: pa.Table, by: int) -> pa.Table:
    """The rows under other numbers."""
    return rows.set_column(0, rows.schema.field(0), pc.add(rows.column(0), pa.scalar(by, pa.int32())))


def _tick(flow: ps.IncrementalFlow, changes: Sequence[tuple[pa.Table, int]]) -> None:
    joined = pa.concat_tables(
        part.append_column("_weight", pa.array([weight] * part.num_rows, pa.int64()))
        for part, weight in changes
    )
    if joined.num_rows:
        flow.feed(RELATION, ps.DeltaBatch.weighted(joined))
    flow.step()


def _raising(session: ps.Session, query: Query, rows: pa.Table, error: ps.PenstockError) -> Outcome:
    """A call that raises over all rows: compared over the groups that are fine, then with one that is not."""
    call = query.calls[0]
    keys = rows.column("g").to_pylist()
    parts = {group: rows.filter(pa.array([key == group for key in keys])) for group in range(GROUPS)}
    answers = {group: _batch(session, query, part) for group, part in parts.items()}
    bad = {group: answer for group, answer in answers.items() if isinstance(answer, ps.PenstockError)}
    flow = ps.IncrementalFlow(session)
    flow.register_source(RELATION, query.table.ddl())
    try:
        explanation = flow.register_view("v", query.sql)
    except Exception as refused:
        code = refused.code if isinstance(refused, ps.PenstockError) else ""
        return (
            Outcome(call, "", "right", "", code, "raises as in Spark")
            if code == error.code
            else refusal(call, refused)
        )
    reason = _reason(explanation)
    good = rows.filter(pa.array([key not in bad for key in keys]))
    want = _batch(session, query, good)
    if isinstance(want, ps.PenstockError):
        return Outcome(
            call, explanation.tier, "WRONG", reason, detail=f"{query.sql}: Spark raises for all rows: {want}"
        )
    detail = _played(session, flow, query, good, want)
    if detail is None and bad:
        group, expected = next(iter(bad.items()))
        try:
            flow.feed(RELATION, ps.DeltaBatch.inserts(parts[group]))
            flow.step()
            got = "nothing"
            if _overflow_passes(session, query, pa.concat_tables([good, parts[group]]), flow.snapshot("v")):
                return Outcome(call, explanation.tier, "by order", reason)
        except ps.PenstockError as raised:
            got = raised.code
        if got != expected.code:
            detail = f"{query.sql}: view raises {got}, Spark {expected.code} for {parts[group].to_pylist()}"[
                :800
            ]
    return Outcome(call, explanation.tier, "WRONG" if detail else "right", reason, detail=detail or "")
