from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import DataError, StateError
from penstock.transforms.base import TransformContext
from penstock.transforms.dynamic_table.memory import MANIFEST, MemoryTable, contents, edit


class Values:
    """Values of one node that several processes write."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.refusals = 0

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        self.values[key] = value

    def remove(self, key: str) -> None:
        self.values.pop(key, None)

    def clear(self) -> None:
        self.values.clear()

    def swap(self, key: str, old: Any, new: Any) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        if self.values.get(key) != old:
            return False
        self.values[key] = new
        return True


def _table(values: Values, value_type: str = "int64") -> MemoryTable:
    table = MemoryTable("vip", value_type=value_type)
    context = TransformContext(None, "q", "vip", None, state=values)  # type: ignore[arg-type]
    table.check(context, None)
    table.open(context, None)
    return table


def _contents(table: MemoryTable) -> list[Any]:
    return sorted(table.members.values().to_pylist())


def test_edits_are_taken_when_an_epoch_begins_and_only_once() -> None:
    values = Values()
    table = _table(values)
    edit(values, "vip", add=["1", "2"], remove=["2"])
    assert _contents(table) == []
    table.update(0, None)
    assert _contents(table) == [1]
    edit(values, "vip", remove=["1"], add=["5"])
    table.update(1, None)
    assert _contents(table) == [5]
    edit(values, "vip", add=["5"])  # which changes nothing
    table.update(2, None)
    edit(values, "vip", add=["6"])
    assert [entry[0] for entry in values.values["edits"]["list"]] == [5]
    table.close()
    again = _table(values)
    assert _contents(again) == [5]
    again.update(2, None)
    assert _contents(again) == [5, 6]
    assert contents(values, "vip") == [5, 6]


def test_steps_become_one_and_leave_nothing_behind() -> None:
    values = Values()
    table = _table(values)
    for number in range(30):
        edit(values, "vip", add=[str(number)])
        table.update(number, None)
    assert _contents(_table(values)) == list(range(30))
    named = {f"part-{number}" for number in values.values[MANIFEST]["parts"]}
    assert named == {key for key in values.values if key.startswith("part-")}
    assert len(named) < 10


def test_a_process_that_dies_between_two_writes_leaves_the_set_as_it_was() -> None:
    values = Values()
    table = _table(values)
    edit(values, "vip", add=["1"])
    table.update(0, None)
    edit(values, "vip", add=["2"])

    class Cut(Exception):
        pass

    put = values.put

    def fail_at_the_manifest(key: str, value: Any) -> None:
        if key == MANIFEST:
            raise Cut
        put(key, value)

    values.put = fail_at_the_manifest  # type: ignore[method-assign]
    with pytest.raises(Cut):
        table.update(1, None)
    values.put = put  # type: ignore[method-assign]
    again = _table(values)
    assert _contents(again) == [1]
    again.update(1, None)
    assert _contents(again) == [1, 2]
    assert _contents(_table(values)) == [1, 2]


def test_edits_that_make_no_sense_are_refused_at_once() -> None:
    values = Values()
    with pytest.raises(StateError) as unknown:
        edit(values, "vip", add=["1"])
    assert unknown.value.code == "DYNAMIC_TABLE_UNKNOWN"
    _table(values)
    with pytest.raises(DataError) as refused:
        edit(values, "vip", add=["x"])
    assert refused.value.code == "DYNAMIC_TABLE_VALUE"
    values.refusals = 3
    edit(values, "vip", add=["1"])  # another editor was faster three times
    values.refusals = 1_000
    with pytest.raises(StateError) as busy:
        edit(values, "vip", add=["1"])
    assert busy.value.code == "DYNAMIC_TABLE_BUSY"


def test_another_type_is_refused() -> None:
    values = Values()
    _table(values)
    with pytest.raises(StateError) as raised:
        _table(values, "string")
    assert raised.value.code == "DYNAMIC_TABLE_CHANGED"
