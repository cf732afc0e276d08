from __future__ import annotations

import random

import pytest

from penstock.errors import DataError
from penstock.transforms.dynamic_table.members import MOST_PARTS, Members, kind_of, spark_type


def test_any_steps_give_the_set_that_python_has() -> None:
    rng = random.Random(7)
    for type_name in ("bigint", "string"):
        members, expected = Members(type_name), set[object]()
        for step in range(60):
            values = [rng.randrange(40) for _ in range(rng.randrange(6))]
            gone = [rng.randrange(40) for _ in range(rng.randrange(6))]
            if type_name == "string":
                values, gone = list(map(str, values)), list(map(str, gone))  # type: ignore[arg-type]
            gone = [value for value in gone if value not in values]
            members = members.apply(members.array(values), members.array(gone))
            expected = (expected - set(gone)) | set(values)
            assert sorted(map(str, members.values().to_pylist())) == sorted(map(str, expected)), step
            assert len(members.parts) <= MOST_PARTS
            asked = members.array(list(map(str, range(40))) if type_name == "string" else list(range(40)))
            inside = members.contains(asked).to_pylist()
            assert {value for value, yes in zip(asked.to_pylist(), inside, strict=True) if yes} == expected


def test_what_changes_nothing_is_no_step() -> None:
    members = Members("int").apply(Members("int").array([1, None, 2]), Members("int").array([]))
    assert members.apply(members.array([2, 1]), members.array([3])) is members
    assert members.values().to_pylist() == [1, 2]


def test_types_that_cannot_be_compared_are_refused() -> None:
    assert (kind_of("decimal(10,2)"), kind_of("varchar(3)"), kind_of("date")) == ("number", "text", "date")
    assert spark_type("int64") == "bigint"
    for kind in ("double", "array<int>", "interval day to second"):
        with pytest.raises(DataError) as raised:
            kind_of(kind)
        assert raised.value.code == "DYNAMIC_TABLE_TYPE"
