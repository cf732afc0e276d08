"""A state is found by its name whatever the order in which views, rows and look-ups came, and so is a flow's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.circuit.local import LocalKernel
from penstock.circuit.state_key import StateKey
from penstock.data.consolidate import consolidate
from penstock.state.arrangement import Arrangement
from penstock.state.spine import Spine
from twin.flows import ALL_VIEWS, LOOKUPS, Action, Change, Subject
from twin.rigs import bits, through_bytes
from twin.rows import small_state

# Keys are not negative, so that the recursion, which follows negative values, ends.
CHANGE = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-2, 3), st.integers(0, 1), st.booleans()), max_size=5
)


def content(state: Any) -> Counter[tuple[Any, ...]] | None:
    """The rows of a state that holds rows; operators that hold something else are judged by the answers."""
    if not isinstance(state, Arrangement | Spine):
        return None
    rows = consolidate(state.before().rows())
    keys = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter(dict(zip(keys, rows.weights.tolist(), strict=True)))


def contents(kernel: LocalKernel) -> dict[StateKey, Any]:
    """What every state holds; states of the same name must hold the same."""
    by_key: dict[StateKey, Any] = {}
    for key, state in kernel.named_states():
        image = content(state)
        assert by_key.setdefault(key, image) == image, f"two states {key} differ"
    return by_key


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_order_gives_the_same_states_and_answers(data: st.DataObject) -> None:
    changes = data.draw(st.lists(CHANGE, min_size=1, max_size=4))
    actions: list[Action] = [("tick", None) for _ in changes]
    actions += [("view", name) for name in ALL_VIEWS]
    actions += [("lookup", what) for what in LOOKUPS]
    actions += [("drop", name) for name in data.draw(st.lists(st.sampled_from([*ALL_VIEWS]), max_size=3))]
    subjects = [Subject(changes) for _ in range(2)]
    for subject in subjects:
        for action in data.draw(st.permutations(actions)):
            subject.do(action)
        for name in ALL_VIEWS:
            subject.add(name)
    one, other = (contents(subject.kernel) for subject in subjects)
    for key in one.keys() & other.keys():
        assert one[key] == other[key], key
    # What is kept by some columns may differ: which key a source is sorted by depends on who asked first.
    assert operator_states(one) == operator_states(other) != set()
    assert subjects[0].answers() == subjects[1].answers()
    rebuilt = ps.IncrementalFlow.from_definition(subjects[0].flow.definition())._graph.kernel
    assert isinstance(rebuilt, LocalKernel)
    sources = {key for key in rebuilt.states() if key in empty_flow().states()}
    assert sources <= one.keys(), "what cannot be computed from anything else is always there"
    for key in rebuilt.states().keys() - one.keys():
        # An index, or the rows of a view or of a join, which `fill` makes again of what is below.
        assert key.role == "rows"
        assert key not in sources


def operator_states(by_key: Iterable[StateKey]) -> set[StateKey]:
    """The states that are no rows by some columns: what operators keep."""
    return {key for key in by_key if key.role != "rows"}


def empty_flow() -> LocalKernel:
    """The two sources alone."""
    return Subject([]).kernel


@pytest.mark.parametrize("name", ALL_VIEWS)
def test_a_view_that_comes_last_has_the_states_of_one_that_came_first(name: str) -> None:
    """Also for one view alone: which key a source is sorted by, and what is shared, is not in the names."""
    changes = [[(1, 2, 0, False), (1, 3, 1, False), (2, 2, 0, False)], [(1, 2, 0, True), (2, 3, 0, False)]]
    first, last = Subject(changes), Subject(changes)
    first.add(name)
    for subject in (first, last):
        subject.tick()
        subject.tick()
    last.add(name)
    assert contents(first.kernel) == contents(last.kernel)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_restored_kernel_goes_on_whatever_the_order_of_its_views(data: st.DataObject) -> None:
    """Saved after some ticks and loaded by name, also when the states of some views were not saved."""
    changes = data.draw(st.lists(CHANGE, min_size=2, max_size=5))
    names = data.draw(st.permutations([*ALL_VIEWS]))
    before = data.draw(st.integers(1, len(changes) - 1))
    one = Subject(changes)
    with small_state():
        for name in names:
            one.add(name)
        for _ in range(before):
            one.tick()
        images = {key: through_bytes(image) for key, image in one.kernel.save().items()}
        saved = {*images}
        for key in data.draw(st.lists(st.sampled_from([*images]), max_size=3)):
            if key not in empty_flow().states():
                images.pop(key, None)
        other = Subject(changes[before:], images)
        for name in data.draw(st.permutations(names)):
            other.add(name)
        assert set(other.kernel.loaded) <= images.keys()
        if images.keys() == saved:
            # A recursion is made again when the rows that its step reads are kept by other columns now.
            made_again = operator_states(saved.difference(other.kernel.loaded))
            assert {key.role for key in made_again} <= {"levels"}
        assert other.answers() == one.answers()
        for _ in changes[before:]:
            one.tick()
            other.tick()
            assert other.answers() == one.answers()


@settings(deadline=None, max_examples=20)
@given(changes=st.lists(CHANGE, min_size=2, max_size=6))
def test_a_restored_kernel_gives_the_same_bits(changes: list[Change]) -> None:
    one = Subject(changes)
    with small_state():
        for name in ALL_VIEWS:
            one.add(name)
        one.tick()
        images = {key: through_bytes(image) for key, image in one.kernel.save().items()}
        other = Subject(changes[1:], images)
        for name in ALL_VIEWS:
            other.add(name)
        assert other.kernel.states().keys() == one.kernel.states().keys()
        assert set(other.kernel.loaded) == images.keys(), "a view was filled anew"
        for _ in changes[1:]:
            assert [bits(delta) for delta in one.emitted()] == [bits(delta) for delta in other.emitted()]
