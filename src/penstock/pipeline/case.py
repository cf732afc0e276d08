"""The tests of a pipeline: given rows go through its steps as one epoch, and the rows of nodes are compared with
those expected, of sinks those that they take."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.data.operation import DELETE, OPERATION, WEIGHT
from penstock.errors import ConfigError, PenstockError, suggest
from penstock.pipeline.evaluator import Evaluator
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.planner import Planner
from penstock.pipeline.secret import hide
from penstock.pipeline.step import Step
from penstock.sinks.base import Target
from penstock.spark import json_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine.session import Session
    from penstock.pipeline.group import GroupPlan
    from penstock.pipeline.spec import PipelineSpec, TestSpec


@dataclass(frozen=True, slots=True)
class Difference:
    """How the rows of a node differ from those expected."""

    node: str
    missing: tuple[Mapping[str, Any], ...]
    """Expected, and not there."""
    surplus: tuple[Mapping[str, Any], ...]
    """There, and not expected."""
    keys: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return it as lines for people: rows of one key together, with the columns that differ."""
        rest = list(self.surplus)
        lines = []
        for row in self.missing:
            other = next((left for left in rest if self.keys and _same_key(row, left, self.keys)), None)
            if other is None:
                lines.append(f"- {_shown(row)}")
                continue
            rest.remove(other)
            key = ", ".join(f"{name}={_value(row.get(name))}" for name in self.keys)
            differing = [
                f"{name}: expected {_value(row[name])}, got {_value(other.get(name))}"
                for name in row
                if row[name] != other.get(name)
            ]
            lines.append(f"~ {key}: {'; '.join(differing)}")
        return [*lines, *(f"+ {_shown(row)}" for row in rest)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a test."""

    test: TestSpec
    differences: tuple[Difference, ...] = ()
    error: PenstockError | None = None

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return self.error is None and not self.differences


def run_tests(session: Session, spec: PipelineSpec) -> list[Outcome]:
    """Run all tests of a pipeline, each on its own; nothing is read from its sources or written to its sinks."""
    outcomes = []
    for test in spec.tests:
        try:
            outcomes.append(Outcome(test, tuple(_run(session, spec, test))))
        except PenstockError as error:
            error.hide(partial(hide, secrets=spec.secrets))
            outcomes.append(Outcome(test, error=error))
    return outcomes


def _run(session: Session, spec: PipelineSpec, test: TestSpec) -> list[Difference]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    try:
        compared = {name: spec.rows_of(name) for name in test.expect}
        groups = Planner(session, spec, folder=folder, read=set(compared.values()), is_trial=True).groups()
        differences: list[Difference] = []
        for group in groups:
            names = {name: node for name, node in compared.items() if node in group.outputs}
            if names:
                differences += _run_group(session, group, test, names)
                compared = {name: node for name, node in compared.items() if name not in names}
        if compared:
            raise ConfigError(
                f"'{next(iter(compared))}' gives no rows that could be compared",
                code="PIPELINE_TEST",
                where=str(test.place),
                hint="expect the rows of a node that a source, a transform or a sink takes",
            )
        return differences
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_group(
    session: Session, group: GroupPlan, test: TestSpec, names: Mapping[str, str]
) -> list[Difference]:
    """Compare what the test expects with the rows of a group; `names` maps each expectation to the node whose rows it
    is about."""
    steps = [_with_test_rows(session, group, step, test) for step in group.steps]
    evaluator = Evaluator(steps, read=list(names.values()))
    target = Target(
        session.spark,
        query="test",
        name=test.name,
        mode="append",
        schema=group.sources[0].output.schema,
        settings=session.settings,
    )
    rows = {
        source.node.name: _test_rows(session, test, source.node.name, source.output)
        for source in group.sources
    }
    try:
        evaluator.open(target)
        epoch = evaluator.evaluate(0, rows, separates=True)
        try:
            differences = [
                _compare(session, name, epoch.frames[node], group.outputs[node], test.expect[name], test)
                for name, node in names.items()
            ]
        finally:
            epoch.release()
    finally:
        evaluator.close()
    return [difference for difference in differences if difference is not None]


class FixedStep(Step):
    """Replaces a step whose rows a test gives, so that no other system is asked for them."""

    def __init__(self, step: Step, rows: Mapping[str, DataFrame]) -> None:
        self._step = step
        self._rows = rows
        self.nodes, self.inputs = step.nodes, step.inputs

    def outputs(self) -> Mapping[str, NodeOutput]:
        return self._step.outputs()

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        return self._rows


def _with_test_rows(session: Session, group: GroupPlan, step: Step, test: TestSpec) -> Step:
    names = [name for name in step.nodes if name in test.given]
    if not names:
        return step
    return FixedStep(step, {name: _test_rows(session, test, name, group.outputs[name]) for name in names})


def _test_rows(session: Session, test: TestSpec, node: str, output: NodeOutput) -> DataFrame:
    rows = test.given.get(node, ())
    _check_columns(test, node, rows, output.columns)
    if output.operations:
        rows = [{OPERATION: "i", **row} for row in rows]
    try:
        return json_rows.frame_of(session.spark, rows, output.schema)
    except PenstockError as error:
        error.message = f"given rows of '{node}': {error.message}"
        error.where = error.where or str(test.place)
        raise


def _compare(
    session: Session,
    node: str,
    frame: DataFrame,
    output: NodeOutput,
    expected_rows: Sequence[Mapping[str, Any]],
    test: TestSpec,
) -> Difference | None:
    columns = output.columns
    _check_columns(test, node, expected_rows, columns)
    mentioned = {name for row in expected_rows for name in row}
    compared = [
        name
        for name in columns
        if name in mentioned or (not expected_rows and name not in (OPERATION, WEIGHT))
    ]
    if output.operations and OPERATION not in mentioned:
        frame = frame.where(f"{OPERATION} <> '{DELETE}'")
    actual = Counter[str]()
    if output.weights and WEIGHT not in mentioned:
        for text in json_rows.texts_of(frame, [*compared, WEIGHT]):
            row = json.loads(text)
            weight = row.pop(WEIGHT)
            actual[json.dumps(row)] += weight
        actual = +actual
    else:
        actual = Counter(json.dumps(json.loads(text)) for text in json_rows.texts_of(frame, compared))
    fields = [field for field in output.schema.fields if field.name in compared]
    schema = type(output.schema)(fields)
    try:
        expected = Counter(
            json.dumps(json.loads(text))
            for text in json_rows.texts_of(json_rows.frame_of(session.spark, expected_rows, schema), compared)
        )
    except PenstockError as error:
        error.message = f"expected rows of '{node}': {error.message}"
        error.where = error.where or str(test.place)
        raise
    if actual == expected:
        return None
    keys = tuple(key for key in output.keys if key in compared)
    return Difference(node, _rows(expected - actual), _rows(actual - expected), keys)


def _check_columns(
    test: TestSpec, node: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> None:
    for row in rows:
        for name in row:
            if name not in columns:
                raise ConfigError(
                    f"'{node}' has no column '{name}'",
                    code="PIPELINE_TEST",
                    where=str(test.place),
                    hint=suggest(name, columns, what="column"),
                )


def _rows(counter: Counter[str]) -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(text) for text in counter.elements())


def _same_key(left: Mapping[str, Any], right: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return all(left.get(key) == right.get(key) for key in keys)


def _shown(row: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
