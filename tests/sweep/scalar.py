"""Scalar functions: many calls at once as columns of views, over three ticks, next to Spark's batch query.

Rows for which a call raises are found first. Calls that raise for no row share a view; each other call has a source and a view of its
own, gets the rows that are fine, and in the end, one by one, some that are not, which must be refused with the code that the batch query gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

import penstock as ps
from golden import canonical
from golden.spark_answer import settings
from penstock.plan import node as plan
from penstock.spark.boot import janino
from penstock.spark.catalyst import Relation, bridge, placed, plan_view
from penstock.spark.errors import translate
from sweep import answer
from sweep.call import Call, Table
from sweep.kinds import SETTINGS
from sweep.outcome import Outcome, Verdict

COMPILED = {
    **SETTINGS,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
# The optimizer answers a query over few rows itself.
FOLDED = {**SETTINGS, "spark.sql.optimizer.excludedRules": ""}
_NOISE = 100_000  # added to the numbers of rows that come and go
_TOGETHER = 25  # calls of one view

_CODES: dict[str, str | None] = {}  # condition of an error -> code

Expected = tuple[str, dict[int, Any]] | str


# What asks for the time gets that of the tick.
CLOCK = 1_714_979_289_123_456
_NOW = {
    **dict.fromkeys(("now()", "current_timestamp()"), "TIMESTAMP'2024-05-06 07:08:09.123456Z'"),
    "localtimestamp()": "TIMESTAMP_NTZ'2024-05-06 03:08:09.123456'",
    **dict.fromkeys(("current_date()", "curdate()"), "DATE'2024-05-06'"),
    "unix_timestamp()": "1714979289L",
}


@dataclass(slots=True)
class Subject:
    """A call in the table of its chunk, with what is known about it so far."""

    call: Call
    bare: str  # the call
    text: str  # the call, in a form that can leave Spark
    columns: list[str]
    raising: dict[int, str] = field(default_factory=dict)  # row -> condition
    compiled: bool = False  # the rows that raise are those of the compiled call
    tier: str = ""
    reason: str = ""

    @property
    def batch(self) -> str:
        """The call as a batch query has it: with the time of the ticks in place of now."""
        text = self.text
        for call, constant in _NOW.items():
            text = text.replace(call, constant)
        return text


def shown(kind: str, text: str) -> str:
    """A call whose value can leave Spark: types that Arrow has not are text."""
    if kind == "variant":
        return f"to_json({text})"
    if kind.startswith("geo"):
        return f"st_asbinary({text})"
    odd = ("variant", "time(", "interval year", "interval month")
    if kind == "interval" or any(word in kind for word in odd) or "interval>" in kind or "interval," in kind:
        return f"CAST({text} AS STRING)"
    return text


def _shown(call: Call, text: str) -> str:
    """The same; text that is made of bytes need not be text that others can read, so it is compared as bytes."""
    if call.type == "string" and "binary" in call.kinds:
        return f"CAST({text} AS BINARY)"
    return shown(call.type, text)


def sweep(
    session: ps.Session,
    calls: Sequence[Call],
    constants: dict[str, dict[str, Any]],
    *,
    rows: int,
    full: bool = False,
    chunk: int = 60,
) -> Iterator[Outcome]:
    """Compare calls of scalar functions; `full` asks for the error of every row that the kernel must refuse."""
    with settings(session.spark, COMPILED):
        for start in range(0, len(calls), chunk):
            yield from _together(session, calls[start : start + chunk], constants, rows, full)


def _together(
    session: ps.Session, calls: Sequence[Call], constants: dict[str, dict[str, Any]], rows: int, full: bool
) -> list[Outcome]:
    """Compare calls at once; when that fails as a whole, in halves, down to the call that is to blame."""
    try:
        return list(_Chunk(session, calls, constants, rows, full).outcomes())
    except (ConnectionError, Py4JNetworkError):
        raise  # Spark is gone
    except Exception as error:
        if len(calls) == 1:
            return [Outcome(calls[0], "", "WRONG", detail=f"{type(error).__name__}: {error}"[:400])]
        half = len(calls) // 2
        parts = (calls[:half], calls[half:])
        return [outcome for part in parts for outcome in _together(session, part, constants, rows, full)]


class _Chunk:
    def __init__(
        self,
        session: ps.Session,
        calls: Sequence[Call],
        constants: dict[str, dict[str, Any]],
        rows: int,
        full: bool,
    ) -> None:
        self.session = session
        self.spark = session.spark
        self.full = full
        self.table = Table(rows, constants)
        self.subjects = [
            Subject(call, text, _shown(call, text), self.table.names(call))
            for call in calls
            for text in [self.table.text(call)]
        ]
        self.rows = self.table.rows()
        self.refused: list[Outcome] = []

    def outcomes(self) -> Iterator[Outcome]:
        self._show(self.rows, self.table.ddl())
        self.refused = []
        accepted = self._planned(self.subjects)
        yield from self.refused
        self._find_raising(accepted)
        yield from _Comparison(self, accepted).outcomes()

    def _show(self, rows: pa.Table, ddl: str) -> None:
        self.spark.createDataFrame(rows, schema=ddl).createOrReplaceTempView("sweep_rows")

    # ------------------------------------------------------------------ planning

    def _planned(self, subjects: list[Subject]) -> list[Subject]:
        """The subjects whose views are accepted, with their tiers; several at once as long as none is refused."""
        accepted: list[Subject] = []
        for start in range(0, len(subjects), _TOGETHER):
            accepted += self._plan_halves(subjects[start : start + _TOGETHER])
        return accepted

    def _plan_halves(self, subjects: list[Subject]) -> list[Subject]:
        error = self._plan(subjects, [subject.bare for subject in subjects])
        if error is not None and len(subjects) == 1:
            # A view may have the call, though not as its column.
            error = self._plan(subjects, [subjects[0].text])
            if error is not None:
                self._refuse(subjects[0], error)
                return []
        if error is None:
            return subjects
        half = len(subjects) // 2
        return [*self._plan_halves(subjects[:half]), *self._plan_halves(subjects[half:])]

    def _refuse(self, subject: Subject, error: Exception) -> None:
        if isinstance(error, ps.PenstockError) and not isinstance(error, ps.InternalError):
            refusal = error.message.split("\n")[0]
            batch = self.batch_error(subject, self.rows)
            if batch == error.code:
                self.refused.append(Outcome(subject.call, "", "right", "", error.code, "raises as in Spark"))
            else:
                self.refused.append(Outcome(subject.call, "", "refused", refusal, error.code))
        else:
            self.refused.append(Outcome(subject.call, "", "WRONG", detail=f"planning: {error!r}"[:400]))

    def batch_error(self, subject: Subject, rows: pa.Table) -> str | None:
        """The code with which a batch query over rows fails, None when it does not."""
        names = set(rows.schema.names)
        frame = self.spark.createDataFrame(rows, schema=self.table.ddl(names))
        frame.createOrReplaceTempView("sweep_some")
        try:
            self.spark.sql(f"SELECT {subject.batch} AS v FROM sweep_some").toArrow()
        except Exception as error:
            return translate(error).code
        return None

    def _plan(self, subjects: Sequence[Subject], texts: Sequence[str]) -> Exception | None:
        items = ", ".join(f"{text} AS v{index}" for index, text in enumerate(texts))
        fields = tuple(plan.Field(name, kind) for name, kind in self.table.types().items())
        try:
            planned = plan_view(self.spark, "v", f"SELECT id, {items} FROM t", {"t": Relation("t", fields)})
        except Exception as error:
            return error
        front = bridge.front(self.spark)
        described = bridge.described(front.describe(planned.session, planned.optimized))
        if described["c"] != "Project" or described["k"][0]["c"] != "LogicalRDD":
            for subject in subjects:
                subject.tier = ""
            return (
                None
                if len(subjects) == 1
                else ps.InternalError("calls that change the plan are planned alone")
            )
        child = described["k"][0]
        scope = {
            ("a", item[0]): (index, plan.Field(item[1], item[2], item[3]))
            for index, item in enumerate(child["o"])
        }
        for subject, item in zip(subjects, described["a"]["projectList"][1:], strict=True):
            hoisted: list[Any] = []
            placed._unknown(item["e"], scope, None, hoisted)
            hoisted = [
                entry
                for entry in placed._with_bytes_as_text(item["e"], hoisted)
                if not placed._is_by_row(entry[0], scope)
            ]
            subject.tier = "spark" if hoisted else "kernel"
            subject.reason = hoisted[0][1] if hoisted else ""
        return None

    # ------------------------------------------------------------------ rows that raise

    def _find_raising(self, subjects: Sequence[Subject]) -> None:
        for start in range(0, len(subjects), _TOGETHER):
            some = subjects[start : start + _TOGETHER]
            if not self.ask_raising(some):
                for subject in some:
                    if not self.ask_raising([subject]):
                        self._ask_rows(subject)

    def ask_raising(self, subjects: Sequence[Subject], *, compiled: bool = False) -> bool:
        """Ask which rows raise; False when the plan is not a plain projection."""
        java = janino.instance(self.spark, "sweep", "Sweep")
        items = ", ".join(f"{subject.batch} AS v{index}" for index, subject in enumerate(subjects))
        query = f"SELECT {items} FROM sweep_rows"
        try:
            lines = list(java.raised(self.spark._jsparkSession, query, compiled))
        except Exception:
            return False
        for subject, line in zip(subjects, lines, strict=True):
            conditions = line.split("\t")[:-1]
            subject.raising |= {row: condition for row, condition in enumerate(conditions) if condition}
        return True

    def _ask_rows(self, subject: Subject) -> None:
        """Ask for each row by a query of its own, when the plan is not a plain projection."""
        if self.batch_error(subject, self.rows) is None:
            return
        for row in range(self.table.length):
            code = self.error_of(subject, row)
            if code is not None:
                subject.raising[row] = code

    def code_of(self, subject: Subject, row: int) -> str | None:
        """The code of an error by its condition, which is asked for once; errors without a name are asked for each call."""
        condition = subject.raising[row]
        named = condition.replace(".", "_").isupper() and not condition.startswith("_LEGACY")
        key = condition if named else f"{subject.text}: {condition}"
        if key not in _CODES:
            _CODES[key] = self.error_of(subject, row)
        return _CODES[key]

    def error_of(self, subject: Subject, row: int, *, compiled: bool = False) -> str | None:
        """The code with which a batch query over one row fails, None when it does not."""
        with settings(self.spark, COMPILED if compiled else FOLDED):
            try:
                self.spark.sql(f"SELECT {subject.batch} AS v FROM sweep_rows WHERE id = {row}").toArrow()
            except Exception as error:
                return translate(error).code
        return None


class _Comparison:
    """The accepted calls of a chunk as views of one flow."""

    def __init__(self, chunk: _Chunk, subjects: Sequence[Subject]) -> None:
        self.chunk = chunk
        self.spark = chunk.spark
        self.all_rows = chunk.rows
        quiet = [subject for subject in subjects if not subject.raising and subject.tier]
        self.groups = [quiet[start : start + _TOGETHER] for start in range(0, len(quiet), _TOGETHER)]
        self.single = [subject for subject in subjects if subject.raising or not subject.tier]
        self.expected: dict[int, Expected] = {}

    def outcomes(self) -> Iterator[Outcome]:
        flow = ps.IncrementalFlow(self.chunk.session, clock=lambda: CLOCK)
        views: list[_View] = []
        for number, group in enumerate([*self.groups, *([subject] for subject in self.single)]):
            view = _View(f"v{number}", f"t{number}", group, alone=number >= len(self.groups))
            flow.register_source(view.source, self.chunk.table.ddl(self._names(group)))
            try:
                explanation = flow.register_view(
                    view.name,
                    self._query(group, view.source),
                    on_error="reject" if view.alone else "suspend",
                )
            except Exception as error:
                if view.alone:
                    yield _judged(group[0], f"registration: {error!r}")
                else:
                    yield from self._apart(group)
                continue
            for subject in group:
                if not subject.tier:
                    subject.tier = explanation.tier
                    subject.reason = "; ".join(line.reason for line in explanation.operators if line.reason)
            views.append(view)
        for tick in range(3):
            for view in views:
                changes = self._changes(view, tick)
                if changes is not None and not view.alone:
                    flow.feed(view.source, ps.DeltaBatch.weighted(changes))
            flow.step()
        for view in views:
            yield from self._judge_alone(flow, view) if view.alone else self._judge(flow, view)
        flow.close()

    def _names(self, group: Sequence[Subject]) -> list[str]:
        return list(dict.fromkeys(name for subject in group for name in subject.columns))

    def _query(self, group: Sequence[Subject], table: str) -> str:
        items = ", ".join(f"{subject.text} AS v{index}" for index, subject in enumerate(group))
        return f"SELECT id, {items} FROM {table}"

    # ------------------------------------------------------------------ ticks

    def _changes(self, view: _View, tick: int) -> pa.Table | None:
        """The changes of a tick: half of the rows and noise; the other half, and the noise goes; the last two rows go."""
        rows = self._good(view)
        half = rows.num_rows // 2
        noise = rows.slice(half, 12)
        noise = noise.set_column(
            0, noise.schema.field(0), pa.compute.add(noise.column(0), pa.scalar(_NOISE, pa.int32()))
        )
        parts = {
            0: [(rows.slice(0, half), 1), (noise, 1)],
            1: [(noise, -1), (rows.slice(half), 1)],
            2: [(rows.slice(max(0, rows.num_rows - 2)), -1)],
        }[tick]
        tables = [
            part.append_column("_weight", pa.array([weight] * part.num_rows, pa.int64()))
            for part, weight in parts
        ]
        joined = pa.concat_tables(tables)
        return joined if joined.num_rows else None

    def _good(self, view: _View) -> pa.Table:
        bad = {row for subject in view.subjects for row in subject.raising}
        names = [
            "id",
            "g",
            *(name for name in self.all_rows.schema.names if name in set(self._names(view.subjects))),
        ]
        keep = pa.array([row for row in range(self.all_rows.num_rows) if row not in bad], pa.int64())
        return self.all_rows.select(names).take(keep)

    def _last(self, view: _View) -> list[int]:
        numbers: list[int] = self._good(view).column("id").to_pylist()
        return numbers[: max(0, len(numbers) - 2)]

    # ------------------------------------------------------------------ judging

    def _judge(self, flow: ps.IncrementalFlow, view: _View) -> Iterator[Outcome]:
        if flow.explain(view.name).suspended is not None:
            yield from self._apart(view.subjects)
            return
        got = flow.snapshot(view.name)
        numbers = self._last(view)
        for index, subject in enumerate(view.subjects):
            yield _judged(subject, self._difference(got, index, subject, numbers))

    def _judge_alone(self, flow: ps.IncrementalFlow, view: _View) -> Iterator[Outcome]:
        """The outcome of the one call of a view, after ticks of its own."""
        (subject,) = view.subjects
        try:
            for tick in range(3):
                changes = self._changes(view, tick)
                if changes is not None:
                    flow.tick(view.source, ps.DeltaBatch.weighted(changes))
        except Exception as error:
            if not subject.compiled and self.chunk.batch_error(subject, self._good(view)) is not None:
                yield from self._again_compiled(subject)
                return
            code = error.code if isinstance(error, ps.PenstockError) else ""
            raised = f"the view raises {code} where Spark answers: {error!r}"[:400]
            yield Outcome(subject.call, subject.tier, "WRONG", subject.reason, code, raised)
            return
        detail = self._difference(flow.snapshot(view.name), 0, subject, self._last(view))
        yield _judged(subject, detail or self._error_difference(flow, view, subject))

    def _apart(self, subjects: Sequence[Subject]) -> Iterator[Outcome]:
        """The outcomes of calls with a view for each."""
        comparison = _Comparison(self.chunk, [])
        comparison.single = list(subjects)
        yield from comparison.outcomes()

    def _again_compiled(self, subject: Subject) -> Iterator[Outcome]:
        """Compare a call once more that raises for more rows when it is compiled."""
        subject.compiled = True
        self.chunk.ask_raising([subject], compiled=True)
        yield from self._apart([subject])

    def _difference(self, got: pa.Table, index: int, subject: Subject, numbers: list[int]) -> str | None:
        """Where the view's column is not that of the batch query."""
        want = self._expected(subject)
        if isinstance(want, str):
            return f"the batch query raises {want}, its expressions do not"
        kind, theirs = want
        if canonical.kind(got.schema.field(index + 1).type) != kind:
            return f"type {got.schema.field(index + 1).type}, Spark {kind}"
        ours = dict(zip(got.column(0).to_pylist(), answer.values(got.column(index + 1)), strict=True))
        if sorted(ours) != numbers:
            return f"rows {sorted(ours.keys() ^ set(numbers))[:5]}"
        for row in numbers:
            if ours[row] != theirs[row]:
                arguments = {name: self.all_rows.column(name)[row].as_py() for name in subject.columns}
                return f"{subject.text} for {arguments}: view {ours[row]!r}, Spark {theirs[row]!r}"
        return None

    def _expected(self, subject: Subject) -> Expected:
        """Spark's own answer: the type and the value of each row that does not raise; or the error that it should not raise."""
        if id(subject) not in self.expected:
            together = next(
                (group for group in self.groups if any(one is subject for one in group)), self.single
            )
            if subject.call.shape == "Window" and together is self.single:
                together = [subject]
            try:
                found = self._batch(together)
            except Exception:
                found = {}
                for one in together:
                    try:
                        found |= self._batch([one])
                    except Exception as error:
                        found[id(one)] = translate(error).message[:300]
            self.expected |= found
        return self.expected[id(subject)]

    def _batch(self, subjects: Sequence[Subject]) -> dict[int, Expected]:
        rows, ddl, items = self.all_rows, self.chunk.table.ddl(), []
        if (
            subjects[0].call.shape == "Window"
        ):  # the answer for a row depends on which others are there in the end
            rows = rows.take(pa.array(self._last(_View("", "", subjects, alone=False)), pa.int64()))
        for index, subject in enumerate(subjects):
            if subject.raising and subject.call.shape != "Window":
                fine = [row not in subject.raising for row in range(rows.num_rows)]
                rows = rows.append_column(f"o{index}", pa.array(fine))
                ddl += f", o{index} boolean"
                items.append(f"CASE WHEN o{index} THEN {subject.batch} END AS v{index}")
            else:
                items.append(f"{subject.batch} AS v{index}")
        self.spark.createDataFrame(rows, schema=ddl).createOrReplaceTempView("sweep_guarded")
        table = self.spark.sql(f"SELECT id, {', '.join(items)} FROM sweep_guarded").toArrow()
        numbers = table.column(0).to_pylist()
        return {
            id(subject): (
                canonical.kind(table.schema.field(index + 1).type),
                dict(zip(numbers, answer.values(table.column(index + 1)), strict=True)),
            )
            for index, subject in enumerate(subjects)
        }

    def _error_difference(self, flow: ps.IncrementalFlow, view: _View, subject: Subject) -> str | None:
        """What is wrong with the errors of a view: asked for one row of each condition, or for every row."""
        names = self._good(view).schema.names
        asked: set[str] = set()
        for row, condition in subject.raising.items():
            if condition in asked and not (self.chunk.full and subject.tier == "kernel"):
                continue
            asked.add(condition)
            arguments = self.all_rows.select(names).slice(row, 1)
            try:
                flow.tick(view.source, ps.DeltaBatch.inserts(arguments))
                got = None
            except Exception as error:
                got = error.code if isinstance(error, ps.PenstockError) else repr(error)
            want = self.chunk.code_of(subject, row)
            # Some functions raise differently when they are compiled, as they mostly are.
            if got != want and got != self.chunk.error_of(subject, row, compiled=True):
                shown = arguments.to_pylist()[0]
                return f"{subject.text} for {shown}: view raises {got}, Spark {want} ({condition})"
        return None


def _judged(subject: Subject, detail: str | None) -> Outcome:
    verdict: Verdict = "right" if detail is None else "WRONG"
    return Outcome(subject.call, subject.tier, verdict, subject.reason, detail=detail or "")


@dataclass(frozen=True, slots=True)
class _View:
    name: str
    source: str
    subjects: Sequence[Subject]
    alone: bool  # one call, in ticks of its own, which may be refused
