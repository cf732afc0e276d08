"""What a stage of views takes in and computes, and what a changed definition means for the state that it has.

Everything here compares values: nothing is opened, and Spark is not called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.data.operation import OPERATION, WEIGHT
from penstock.data.schema import declared_type, to_arrow_schema
from penstock.pipeline.view_node import ARRIVAL
from penstock.plan.node import Field
from penstock.sql.lexer import significant
from penstock.sql.relation import read_names

Retain = Literal["all", "used"]
InputChange = Literal["unchanged", "kept", "emptied", "new", "dropped"]
ViewChange = Literal["unchanged", "kept", "rebuilt", "new", "dropped"]
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class StageInput:
    """A relation that views read, fed by the rows of one node.

    With `keys` it is a table: a row replaces the one with its key. Without keys it is a multiset of all rows, which
    are inserts, unless they carry their weight.
    """

    name: str
    """As the SQL of views names it."""
    schema: Any
    """The columns of its frames: a `StructType`, an Arrow schema or DDL. `_op` and `_weight` may be among them."""
    keys: tuple[str, ...] = ()
    operations: bool = False
    """Whether rows carry `_op`."""
    weights: bool = False
    """Whether rows carry `_weight`, as the changes of a view without a key do; then it has no keys."""
    log: bool = False
    """Whether every row counts, whatever its key: `_op` is a column like others, and `_arrival` numbers the rows as
    they came. It has no keys."""
    origin: tuple[tuple[str, str], ...] = ()
    """What the sources read from which its rows come, by their names; rows of what a source does not read any more go."""
    retain: Retain = "all"
    """`used` keeps only the columns that views use: less memory, but a changed view may need rows that are gone."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its columns as views see them; only keys are NOT NULL, because the rows of deletes may have NULL elsewhere."""
        hidden = {
            *([OPERATION] if self.operations and not self.log else []),
            *([WEIGHT] if self.weights else []),
        }
        keys = {key.lower() for key in self.keys}
        fields = [
            Field(column.name, declared_type(column), column.name.lower() not in keys)
            for column in to_arrow_schema(self.schema)
            if column.name not in hidden
        ]
        return (*fields, Field(ARRIVAL, "bigint", True)) if self.log else tuple(fields)


@dataclass(frozen=True, slots=True)
class StageView:
    """One view: its SQL over inputs and the views before it. Its changes carry `_op` by `keys`, and without keys `_weight`."""

    name: str
    sql: str
    keys: tuple[str, ...] = ()
    wanted: bool = True
    """Whether its changes are read outside of the stage."""


@dataclass(frozen=True, slots=True)
class SavedInput:
    """An input as the state of a stage has it."""

    name: str
    fields: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    retain: Retain
    origin: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, declared: StageInput) -> SavedInput:
        """As it will be saved."""
        fields = tuple((field.name, field.type) for field in declared.fields)
        spelled = {name.lower(): name for name, _ in fields}
        keys = tuple(spelled.get(key.lower(), key) for key in declared.keys)
        return cls(declared.name, fields, keys, declared.retain, declared.origin)


@dataclass(frozen=True, slots=True)
class SavedStageView:
    """A view as the state of a stage has it; `fields` are its columns, by name, type and whether they may be NULL."""

    name: str
    sql: str
    keys: tuple[str, ...]
    wanted: bool
    fields: tuple[tuple[str, str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class SavedStage:
    """What a stage was made of when it was last opened."""

    inputs: Mapping[str, SavedInput]
    views: Mapping[str, SavedStageView]


@dataclass(frozen=True, slots=True)
class InputPlan:
    """What happens to the rows of an input: they stay as they are, are `kept` in other columns, or go (`emptied`, `dropped`)."""

    name: str
    change: InputChange
    reason: str = ""

    @property
    def loses_rows(self) -> bool:
        """Whether rows are lost that this state cannot give again."""
        return self.change in ("emptied", "dropped")


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What happens to a view: its state stays (`unchanged`, or `kept` while its changes begin anew), or it is filled
    again from its inputs (`rebuilt`)."""

    name: str
    change: ViewChange
    reason: str = ""
    loses_rows: bool = False
    """Whether its next answer lacks rows of an input that are gone."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What opening a stage would do to the state that is there."""

    inputs: tuple[InputPlan, ...]
    views: tuple[ViewPlan, ...]

    @property
    def loses_rows(self) -> bool:
        """Whether rows are lost that this state cannot give again: the user should confirm such a change."""
        return any(plan.loses_rows for plan in self.inputs) or any(plan.loses_rows for plan in self.views)

    @property
    def is_unchanged(self) -> bool:
        """Whether everything goes on as it was."""
        changes = [plan.change for plan in self.inputs] + [plan.change for plan in self.views]
        return all(change == "unchanged" for change in changes)

    def view(self, name: str) -> ViewPlan:
        """What happens to a view."""
        return next(plan for plan in self.views if plan.name == name)

    def input(self, name: str) -> InputPlan:
        """What happens to an input."""
        return next(plan for plan in self.inputs if plan.name == name)


def compare(saved: SavedStage | None, inputs: Sequence[StageInput], views: Sequence[StageView]) -> StagePlan:
    """Return what inputs and views mean for the state; `saved` is None for a stage that has no state yet."""
    before = saved or SavedStage({}, {})
    input_plans = list(_input_plans(before, inputs))
    changed = {plan.name: plan for plan in input_plans if plan.change not in ("unchanged", "dropped")}
    view_plans: list[ViewPlan] = []
    moved: dict[str, ViewPlan] = {}
    for view, reads in zip(views, read_by(inputs, views), strict=True):
        plan = _view_plan(
            before.views.get(view.name), view, [changed[name] for name in reads if name in changed]
        )
        above = [moved[name] for name in reads if name in moved]
        if above:
            plan = _with_views(plan, above)
        if plan.change in ("rebuilt", "new"):
            moved[view.name] = plan
        view_plans.append(plan)
    names = {view.name for view in views}
    gone = [
        ViewPlan(name, "dropped", "it is not declared any more") for name in before.views if name not in names
    ]
    return StagePlan(tuple(input_plans), (*view_plans, *gone))


def read_by(inputs: Sequence[StageInput], views: Sequence[StageView]) -> list[tuple[str, ...]]:
    """The inputs and the views before it that each view reads."""
    names = {declared.name.lower(): declared.name for declared in inputs}
    reads: list[tuple[str, ...]] = []
    for view in views:
        reads.append(read_names(view.sql, names))
        names[view.name.lower()] = view.name
    return reads


def same_query(query: str, other: str) -> bool:
    """Whether two queries differ in blanks and comments alone.

    >>> same_query("SELECT 1 AS a", "SELECT 1  -- one\\n AS a")
    True
    """
    return query == other or [word.text for word in significant(query)] == [
        word.text for word in significant(other)
    ]


def readable_columns(saved: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]) -> str | None:
    """Why rows of some columns cannot be rows of others; None when they can: columns may come and go, and numbers
    become wider."""
    types = dict(saved)
    for name, kind in wanted:
        if name in types and not _widens(types[name], kind):
            return f"column '{name}' was {types[name]} and is {kind}"
    return None


def _widens(kind: str, into: str) -> bool:
    if kind == into:
        return True
    return any(
        kind in ladder and into in ladder and ladder.index(kind) < ladder.index(into)
        for ladder in (_INTEGERS, _FLOATS)
    )


def _input_plans(before: SavedStage, inputs: Sequence[StageInput]) -> Iterator[InputPlan]:
    for declared in inputs:
        saved, wanted = before.inputs.get(declared.name), SavedInput.of(declared)
        if saved is None:
            yield InputPlan(declared.name, "new", "it has the rows that come from now on")
        else:
            yield _input_plan(saved, wanted)
    names = {declared.name for declared in inputs}
    for name in before.inputs:
        if name not in names:
            yield InputPlan(name, "dropped", "no view reads it any more: its rows go")


def _input_plan(saved: SavedInput, wanted: SavedInput) -> InputPlan:
    gone = [name for name, reads in saved.origin if (name, reads) not in wanted.origin]
    if gone:
        others = "reads something else" if len(gone) == 1 else "read something else"
        return InputPlan(wanted.name, "emptied", f"{', '.join(gone)} {others}, or nothing, here")
    if replace(saved, origin=wanted.origin) == wanted:
        return InputPlan(wanted.name, "unchanged")
    if saved.keys != wanted.keys:
        return InputPlan(
            wanted.name, "emptied", f"its key was {_listed(saved.keys)} and is {_listed(wanted.keys)}"
        )
    if saved.retain == "used":
        return InputPlan(
            wanted.name, "emptied", "its columns have changed, and only those that views used were kept"
        )
    why = readable_columns(saved.fields, wanted.fields)
    if why is not None:
        return InputPlan(wanted.name, "emptied", why)
    old, new = dict(saved.fields), dict(wanted.fields)
    added, gone = [name for name in new if name not in old], [name for name in old if name not in new]
    reasons = [
        *([f"new columns are NULL in the rows that are there: {', '.join(added)}"] if added else []),
        *([f"columns that are gone: {', '.join(gone)}"] if gone else []),
    ]
    return InputPlan(wanted.name, "kept", "; ".join(reasons) or "its rows are kept in other types")


def _view_plan(saved: SavedStageView | None, view: StageView, inputs: Sequence[InputPlan]) -> ViewPlan:
    loses = any(plan.change == "emptied" for plan in inputs)
    if saved is None:
        return ViewPlan(view.name, "new", "it begins with the rows that its inputs have", loses)
    if not same_query(saved.sql, view.sql):
        return ViewPlan(view.name, "rebuilt", "its query has changed", loses)
    if inputs:
        first = next((plan for plan in inputs if plan.change == "emptied"), inputs[0])
        return ViewPlan(view.name, "rebuilt", f"its input '{first.name}' is {_shown(first)}", loses)
    if saved.keys != view.keys:
        reason = f"its key was {_listed(saved.keys)} and is {_listed(view.keys)}: all its rows go on again"
        return ViewPlan(view.name, "kept", reason)
    if view.wanted and not saved.wanted:
        return ViewPlan(view.name, "kept", "its changes are read from now on: all its rows go on first")
    return ViewPlan(view.name, "unchanged")


def _with_views(plan: ViewPlan, above: Sequence[ViewPlan]) -> ViewPlan:
    loses = plan.loses_rows or any(view.loses_rows for view in above)
    if plan.change in ("rebuilt", "new"):
        return replace(plan, loses_rows=loses)
    return ViewPlan(
        plan.name, "rebuilt", f"the view '{above[0].name}', which it reads, is {above[0].change}", loses
    )


def _shown(plan: InputPlan) -> str:
    match plan.change:
        case "emptied":
            return f"empty again: {plan.reason}"
        case "kept":
            return f"another one: {plan.reason}"
        case _:
            return "new"


def _listed(keys: Sequence[str]) -> str:
    return f"({', '.join(keys)})" if keys else "none"
