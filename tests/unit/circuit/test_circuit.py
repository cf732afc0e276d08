"""The circuit: stepped together or not at all, filled from what is there, taken apart without touching what others need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.circuit.circuit import Circuit, VertexOwner
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import DataError, StateError
from penstock.operators.arrange import Arrange
from penstock.operators.base import Operator
from penstock.operators.contents import of_arrangement
from penstock.operators.linear import Select, Union, Values
from penstock.state.arrangement import Arrangement

TYPES = [pa.int64()]
TICK = Tick(1, 0)


def rows(*numbers: int) -> Delta:
    return Delta((pa.array(numbers, pa.int64()),), np.ones(len(numbers), np.int64))


def numbers(delta: Delta) -> list[int]:
    return sorted(delta.columns[0].to_pylist())


class Entry(Operator):
    """Keeps what it is fed, and fails when it shall."""

    def __init__(self, fails: Sequence[int] = (), *, failing_commit: bool = False) -> None:
        self.arrangement = Arrangement(TYPES, None)
        self.fails = set(fails)
        self.failing_commit = failing_commit
        self.steps = 0

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        self.steps += 1
        self.arrangement.apply(concat(list(inputs)))
        if self.steps in self.fails:
            raise DataError("refused", code="DATA_TEST")
        return concat(list(inputs))

    def commit(self) -> None:
        if self.failing_commit:
            raise MemoryError
        self.arrangement.commit()

    def rollback(self) -> None:
        self.arrangement.rollback()

    def memory(self) -> int:
        return self.arrangement.memory()

    def rows(self) -> Delta:
        return self.arrangement.before().rows()


def chain(circuit: Circuit, *operators: Operator) -> list[int]:
    vertex_ids: list[int] = []
    for operator in operators:
        contents = of_arrangement(operator.arrangement) if isinstance(operator, Entry) else None
        vertex_ids.append(circuit.add(operator, vertex_ids[-1:], TYPES, contents=contents))
    return vertex_ids


def test_only_what_is_dirty_is_stepped_and_every_reader_sees_the_change() -> None:
    circuit = Circuit()
    source, other = Entry(), Entry()
    (a,), (b,) = chain(circuit, source), chain(circuit, other)
    left = circuit.add(Select([0]), (a,), TYPES)
    both = circuit.add(Union(), (left, b), TYPES)
    stepped = circuit.step({a: rows(1, 2)}, TICK)
    circuit.commit()
    assert numbers(stepped.outputs[both]) == [1, 2]
    assert (source.steps, other.steps) == (1, 0)
    assert set(stepped.seconds) == {a, left, both}


@pytest.mark.parametrize("failing", range(3))
def test_an_error_in_any_operator_leaves_nothing_stepped(failing: int) -> None:
    circuit = Circuit()
    operators = [Entry([2] if at == failing else []) for at in range(3)]
    first = chain(circuit, *operators)[0]
    circuit.step({first: rows(1)}, TICK)
    circuit.commit()
    with pytest.raises(DataError):
        circuit.step({first: rows(2)}, TICK)
    assert [numbers(operator.rows()) for operator in operators] == [[1]] * 3
    circuit.step({first: rows(3)}, TICK)
    circuit.commit()
    assert [numbers(operator.rows()) for operator in operators] == [[1, 3]] * 3


def test_a_rollback_in_the_middle_of_a_tick_takes_all_its_steps_back() -> None:
    circuit = Circuit()
    one, other = Entry(), Entry()
    (a,), (b,) = chain(circuit, one), chain(circuit, other)
    circuit.step({a: rows(1)}, TICK, only=[a])
    circuit.step({b: rows(2)}, TICK, only=[b])
    circuit.rollback()
    circuit.commit()
    assert len(one.rows()) == len(other.rows()) == 0


@pytest.mark.parametrize("failing", range(3))
def test_a_commit_that_cannot_be_finished_is_not_hidden(failing: int) -> None:
    circuit = Circuit()
    first = chain(circuit, *(Entry(failing_commit=at == failing) for at in range(3)))[0]
    circuit.step({first: rows(1)}, TICK)
    with pytest.raises(StateError) as at_once:
        circuit.commit()
    with pytest.raises(StateError) as later:
        circuit.step({first: rows(2)}, TICK)
    assert at_once.value.code == later.value.code == "FLOW_TORN"


def test_new_places_are_filled_from_old_ones_and_give_their_first_rows() -> None:
    circuit = Circuit()
    source = Entry()
    (a,) = chain(circuit, source)
    circuit.step({a: rows(1, 2)}, TICK)
    circuit.commit()
    constant = circuit.add(Values(rows(9)), (), TYPES)
    both = circuit.add(Union(), (a, constant), TYPES)
    arrangement = Arrangement(TYPES, (0,))
    index = circuit.add(Arrange(arrangement), (both,), TYPES)
    stepped = circuit.fill([constant, both, index], {}, TICK)
    assert numbers(stepped.outputs[index]) == [1, 2, 9]
    circuit.rollback()
    assert len(arrangement.before().rows()) == 0
    circuit.fill([constant, both, index], {}, TICK)
    circuit.commit()
    circuit.step({a: rows(3)}, TICK)
    circuit.commit()
    assert numbers(arrangement.before().rows()) == [1, 2, 3, 9]
    assert source.steps == 2, "what was there is read and not stepped again"


def test_a_place_gets_another_operator_and_keeps_its_readers() -> None:
    circuit = Circuit()
    (a,) = chain(circuit, Entry())
    behind = circuit.add(Select([0]), (a,), TYPES)
    circuit.replace(a, Values(rows()), [pa.int64(), pa.int64()])
    assert len(circuit.vertices[a].nothing.columns) == 2
    circuit.replace(a, Entry(), TYPES)
    stepped = circuit.step({a: rows(5)}, TICK)
    assert numbers(stepped.outputs[behind]) == [5]


def test_what_several_own_goes_with_the_last_of_them() -> None:
    circuit = Circuit()
    (a,) = chain(circuit, Entry())
    shared = circuit.add(Select([0]), (a,), TYPES)
    one, other = (circuit.add(Select([0]), (shared,), TYPES) for _ in range(2))
    circuit.own([a], VertexOwner("source", "s"))
    until = frozenset({a})
    for name, vertex_id in (("one", one), ("other", other)):
        needed = circuit.reachable(vertex_id, until=until)
        assert sorted(needed) == sorted([shared, vertex_id])
        circuit.own(needed, VertexOwner("view", name))
    assert circuit.disown(VertexOwner("view", "one")) == [one]
    assert set(circuit.vertices) == {a, shared, other}
    assert sorted(circuit.disown(VertexOwner("view", "other"))) == [shared, other]
    assert set(circuit.vertices) == {a}


def test_a_place_that_is_read_is_not_removed() -> None:
    circuit = Circuit()
    a, _ = chain(circuit, Entry(), Entry())
    with pytest.raises(AssertionError, match="has readers"):
        circuit.remove([a])
    assert a in circuit.vertices


def test_an_error_names_all_who_use_the_operator() -> None:
    circuit = Circuit()
    _, failing = chain(circuit, Entry(), Entry([1]))
    circuit.own([failing], VertexOwner("view", "a"))
    with pytest.raises(DataError) as alone:
        circuit.step({0: rows(1)}, TICK)
    assert alone.value.where == "view 'a', entry"
    circuit.vertices[failing].operator = Entry([1])
    circuit.own([failing], VertexOwner("view", "b"))
    circuit.own([failing], VertexOwner("view", "c"))
    with pytest.raises(DataError) as together:
        circuit.step({0: rows(1)}, TICK)
    assert together.value.where == "views 'a', 'b' and 'c', entry"


def test_maintenance_reaches_those_that_the_last_tick_has_changed() -> None:
    class Maintained(Entry):
        fuel = 0

        def maintain(self, fuel: int) -> None:
            self.fuel += fuel

    circuit = Circuit()
    changed, clean = Maintained(), Maintained()
    (a,), (b,) = chain(circuit, changed), chain(circuit, clean)
    circuit.step({a: rows(1)}, TICK)
    circuit.commit()
    circuit.maintain(5)
    assert (changed.fuel, clean.fuel) == (5, 0)
    circuit.step({b: rows(1)}, TICK)
    circuit.commit()
    circuit.remove([b])
    circuit.maintain(7)
    assert (changed.fuel, clean.fuel) == (5, 0)


def test_empty_changes_step_nothing_behind() -> None:
    circuit = Circuit()
    first, second = Entry(), Entry()
    a, _ = chain(circuit, first, second)
    circuit.step({a: empty(TYPES)}, TICK)
    circuit.commit()
    assert (first.steps, second.steps) == (1, 0)
