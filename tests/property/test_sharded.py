"""A kernel in shards is the kernel in one process, to the bit: random plans and histories, on 1 to 8 shards.

Every operator, views on views, relations of every distribution, NULL keys, sources without rows, what only Spark computes; ticks that are rolled back; look-ups;
saving, and loading on the same and on another number of shards.
"""

from __future__ import annotations

import random
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.kernel import Kernel
from penstock.circuit.sharded import ShardedKernel
from penstock.data.tick import Tick
from penstock.engine.registration import Prepared, install
from penstock.errors import PenstockError
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from seed import SEED
from twin.durable import add_view, answers, declare, random_change, tick
from twin.failing import COUNT, FAILING, QUOTIENT, TWO_LESS, inverse
from twin.flows import FIELDS, LARGE, PAIR, ROWS, VIEWS, join, no_fragment, view_scan
from twin.histories import add, drop_some, remembered, resume
from twin.plans import KINDS, fields, plans
from twin.rigs import through_bytes
from twin.rows import examples, small_state
from twin.sharded import again, contents, fragment, local, outputs, random_changes
from twin.sharded import declare as declare_all
from twin.sharded import sharded as in_shards

SHARDS = [1, 2, 3, 5]
SHORT = 4  # histories in the suite
PHASES = (Phase.explicit, Phase.generate)  # a smaller example of a history takes minutes to find


def supported(node: plan.Node) -> bool:
    """The twin's generator, the times of its sessions and the type of its row numbers are not the kernel's."""
    if isinstance(node, plan.Generate | plan.SessionWindow) or (
        isinstance(node, plan.TopK) and node.rank_field
    ):
        return False
    # UNION has distinct rows from the beginning, which the twin's recursion has not.
    if isinstance(node, plan.Recursive) and isinstance(node.step, plan.Join):
        return False
    return all(supported(child) for child in plan.children(node))


def check(root: plan.Node, seed: int, shards: int) -> None:
    """Some ticks, one of them rolled back, then the same on kernels that were loaded; a view that comes late has a part in common with another."""
    chance, views = Random(seed), {"view": root}
    kernels: list[Kernel] = [local(), in_shards(shards)]
    # Registered before the first rows, or behind some.
    late = chance.random() < 0.5
    later = {"view": root} if late else {"copy": copied(root)}
    for kernel in kernels:
        declare_all(kernel, Tick(0, 0), {} if late else views)
    names = [
        "keyed",
        "keyed by two",
        "plain",
        "static",
        "by the last",
        "anywhere",
        "gathered",
        "at most one row",
    ]
    for number in range(1, 6):
        changes, at = random_changes(chance), Tick(number, number)
        try:
            expected = outputs(kernels[0], changes, at)
        except PenstockError as error:
            # A recursion may grow without end, and a sum may overflow.
            with pytest.raises(type(error)):
                kernels[1].step(changes, at)
            kernels[1].rollback()
            continue
        assert outputs(kernels[1], changes, at) == expected
        if chance.random() < 0.2:
            for kernel in kernels:
                kernel.rollback()
            assert outputs(kernels[1], changes, at) == outputs(kernels[0], changes, at)
        for kernel in kernels:
            kernel.commit()
            kernel.maintain(4)
        if number == 2:
            views |= later
            for kernel in kernels:
                _register(kernel, later, at)
        every = [*names, *(view for view in views if number >= 2 or view not in later)]
        assert contents(kernels[1], every) == contents(kernels[0], every)
        if number == 3:
            kernels[1] = reopened(kernels[1], chance.choice([shards, shards, *SHARDS]), at, views)
            assert contents(kernels[1], every) == contents(kernels[0], every)


def copied(root: plan.Node) -> plan.Node:
    """The same rows by another operator."""
    columns = [Column(at, field.type) for at, field in enumerate(root.fields)]
    return plan.Project(root.fields, root, tuple(columns))


def _register(kernel: Kernel, views: dict[str, plan.Node], at: Tick) -> None:
    for name, root in views.items():
        kernel.register(plan.View(name, "", root, statics=("static",)), fragment, at)


def reopened(kernel: Kernel, shards: int, at: Tick, views: dict[str, plan.Node]) -> Kernel:
    images = {key: through_bytes(image) for key, image in kernel.save().items()}
    other = in_shards(shards)
    again(other, images, at, views)
    return other


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "session"])
def test_every_operator_in_shards(kind: str) -> None:
    @settings(examples(15 if kind == "join" else 5), phases=PHASES)
    @given(plans(1, [kind]).filter(supported), st.integers(0, 2**32), st.sampled_from(SHARDS))
    def same(root: plan.Node, seed: int, shards: int) -> None:
        with small_state():
            check(root, seed, shards)

    same()


@st.composite
def sessions(draw: st.DrawFn) -> plan.Node:
    """Sessions by some columns, with a time that is never NULL, and what is made of them."""
    below = draw(plans(1).filter(supported))
    columns = [Column(at, "bigint") for at in range(len(below.fields))]
    time = Call("Coalesce", (draw(st.sampled_from(columns)), Literal(0, "bigint")), "bigint")
    timed = plan.Project(fields(len(columns) + 1), below, (*columns, time))
    keys = draw(st.sets(st.sampled_from(range(len(columns)))).map(sorted).map(tuple))
    start = len(columns)
    rows = plan.SessionWindow(fields(len(columns) + 2), timed, keys, start, start)
    if draw(st.booleans()):
        return rows
    call = plan.AggregateCall("Count", (), "bigint")
    return plan.Aggregate(fields(len(keys) + 2), rows, (*keys, start + 1), (call,))


@st.composite
def ranked(draw: st.DrawFn) -> plan.Node:
    """The first rows of each partition, with their numbers."""
    below = draw(plans(1).filter(supported))
    columns = st.sampled_from(range(len(below.fields)))
    partition = draw(st.sets(columns).map(sorted).map(tuple))
    order = tuple(plan.SortKey(at) for at in draw(st.lists(columns, min_size=1, max_size=2)))
    row_number = plan.Field("row_number", "int")
    limit = draw(st.sampled_from([None, 1, 2]))
    return plan.TopK((*below.fields, row_number), below, partition, order, limit, rank_field=True)


@settings(examples(10), phases=PHASES)
@given(ranked(), st.integers(0, 2**32), st.sampled_from(SHARDS))
def test_row_numbers_in_shards(root: plan.Node, seed: int, shards: int) -> None:
    with small_state():
        check(root, seed, shards)


@settings(examples(10), phases=PHASES)
@given(sessions(), st.integers(0, 2**32), st.sampled_from(SHARDS))
def test_sessions_in_shards(root: plan.Node, seed: int, shards: int) -> None:
    with small_state():
        check(root, seed, shards)


@settings(examples(15), phases=PHASES)
@given(st.integers(2, 3).flatmap(plans).filter(supported), st.integers(0, 2**32), st.sampled_from(SHARDS))
def test_plans_in_shards(root: plan.Node, seed: int, shards: int) -> None:
    with small_state():
        check(root, seed, shards)


def flow(shards: int) -> ps.IncrementalFlow:
    """A flow in shards, or without."""
    made = ps.IncrementalFlow(clock=lambda: 0)
    if shards:
        made._graph.kernel = ShardedKernel(InProcess(shards))
    return made


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_histories_of_flows_in_shards(number: int) -> None:
    """Views that come late, fail, are suspended, go on, and are dropped; look-ups; summaries."""
    rng = random.Random(SEED + number)
    with small_state():
        flows = [flow(shards) for shards in (0, 1, 2, 8)]
        for one in flows:
            declare(one)
        names = [*rng.sample(list(VIEWS), 6), *rng.sample(list(FAILING), 4)]
        rng.shuffle(names)
        for at in range(8):
            if at in (0, 1, 4):
                for name in names[at * 2 : at * 2 + 3]:
                    for one in flows:
                        add(one, name)
            change, resumes = random_change(rng), rng.random() < 0.4
            said: list[Any] = []
            for one in flows:
                tick(one, change)
                said.append((resume(one) if resumes else None, remembered(one)))
                one.lookup("rows", k=1)
            assert said == said[:1] * len(flows)
            drop_some(rng, flows)
            found = [answers(one) for one in flows]
            assert found == found[:1] * len(flows)


def views_on(one: ps.IncrementalFlow, roots: dict[str, plan.Node], *, suspend: bool = False) -> None:
    for name, root in roots.items():
        prepared = Prepared(
            plan.View(name, "", root), no_fragment, on_error="suspend" if suspend else "reject"
        )
        install(one._graph, prepared, 0)


def test_views_that_are_shared_and_resumed_more_than_once() -> None:
    """A view that fails again, beside others that use the same operators since before the first rows."""
    flows = [flow(shards) for shards in (0, 1, 2, 8)]
    quotients = inverse(join("left", PAIR))
    # Without one that has a row from the beginning.
    roots = {"inverse": quotients, "copy": copied(quotients), "by_k": over(quotients, by=(0,))}
    for one in flows:
        declare(one)
        views_on(one, roots, suspend=True)
        views_on(one, {"joined": join("left", PAIR)})
        tick(one, [(k, k + 1, 0, False) for k in range(6)])
        tick(one, [(3, 0, 0, False)])
        for name in roots:
            with pytest.raises(ps.DataError):
                one.resume_view(name)
        tick(one, [(3, 0, 0, True), (2, 4, 0, False)])
        for name in roots:
            one.resume_view(name)
        tick(one, [(1, 1, 0, False)])
        tick(one, [(1, 0, 0, False)])
        assert set(one._graph.state.suspended) == set(roots)
        tick(one, [(1, 0, 0, True)])
        for name in reversed(roots):
            one.resume_view(name)
    found = [answers(one) for one in flows]
    assert found == found[:1] * len(flows)


def test_a_view_that_comes_late_has_an_operator_in_one_place_in_common() -> None:
    """All shards send their rows there once more."""
    flows = [flow(shards) for shards in (0, 1, 2, 8)]
    for one in flows:
        declare(one)
        add_view(one, "walked")
        tick(one, [(k % 4, k % 4, 0, False) for k in range(16)])
        views_on(one, {"copy": copied(VIEWS["walked"])})
        one.drop_view("walked")
        tick(one, [(1, 2, 0, False), (2, 3, 0, False)])
    found = [answers(one) for one in flows]
    assert found == found[:1] * len(flows)


@pytest.mark.parametrize("shared", [False, True])
def test_a_view_fails_because_of_the_first_one_that_it_reads(shared: bool) -> None:
    """Whatever its own operators do, on whatever shard, and whether another view has them, too."""
    own = inverse(PAIR, TWO_LESS)
    both = plan.Union(QUOTIENT, (view_scan("second", QUOTIENT), view_scan("first", QUOTIENT), own))
    roots = {
        "first": inverse(PAIR),
        "second": inverse(PAIR),
        "both": both,
        "last": view_scan("both", QUOTIENT),
    }
    for one in (flow(shards) for shards in (0, 1, 2, 8)):
        declare(one)
        views_on(one, {"other": own, **roots} if shared else roots, suspend=True)
        # Only one shard has the row on which the first views fail.
        tick(one, [*((k, 2, 0, False) for k in range(20)), (7, 0, 0, False)])
        suspended = one._graph.state.suspended
        because = {name: stopped.because for name, stopped in suspended.items()}
        assert because.pop("other", None) is None
        assert because == {"first": None, "second": None, "both": "first", "last": "first"}
        tick(one, [(7, 0, 0, True)])
        one.resume_view("second")
        assert suspended["both"].because == "first"
        one.resume_view("first")
        assert one._graph.state.suspended["last"].because == "both"


def test_a_name_that_is_a_view_and_then_a_source() -> None:
    """The operators above it run in one place, and on all shards later."""
    flows = [flow(shards) for shards in (0, 1, 2, 8)]
    first = plan.TopK(FIELDS, ROWS, (), (plan.SortKey(1, True, False),), 3)
    above = {
        "large_of": plan.Filter(FIELDS, view_scan("rows_of", FIELDS), LARGE.condition),
        "total_of": over(view_scan("rows_of", FIELDS)),
    }
    for one in flows:
        declare(one)
        views_on(one, {"rows_of": first, **above})
        tick(one, [(k, 3, 0, False) for k in range(4)])
        for name in (*reversed(above), "rows_of"):
            one.drop_view(name)
        one.register_source("rows_of", "k BIGINT, v BIGINT, w BIGINT")
        views_on(one, above)
        one.tick("rows_of", [{"k": k, "v": 2, "w": 1} for k in range(20)])
        assert one.snapshot("large_of").num_rows == 20
    found = [answers(one) for one in flows]
    assert found == found[:1] * len(flows)


def over(root: plan.Node, by: tuple[int, ...] = ()) -> plan.Node:
    """How many rows there are."""
    keys = [root.fields[at] for at in by]
    return plan.Aggregate((*keys, plan.Field("n", "bigint")), root, by, (COUNT,))


def test_a_tick_that_fails_on_one_shard_is_made_on_none() -> None:
    plain, wide = flow(0), flow(8)
    for one in (plain, wide):
        one.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
        one.register_source("names", "k BIGINT, name STRING", primary_key="k")
        for name in ("totals", "top_total", "named"):
            add_view(one, name)
        one.tick("rows", [{"k": k, "v": 2**62, "w": 0} for k in range(20)])
        before = answers(one)
        for bad in (
            ps.DeltaBatch.inserts(
                [{"k": 7, "v": 2**62, "w": 1}, {"k": 3, "v": 1, "w": 1}]
            ),  # too large a sum
            ps.DeltaBatch.deletes([{"k": 5, "v": 2**62, "w": 0}, {"k": 50, "v": 0, "w": 0}]),  # not there
        ):
            with pytest.raises(ps.DataError):
                one.tick("rows", bad)
            assert answers(one) == before
        one.tick("rows", [{"k": 3, "v": -1, "w": 1}])
    assert answers(plain) == answers(wide)


@pytest.mark.parametrize("shards", [1, 4])
def test_why_in_shards(shards: int) -> None:
    plain, wide = flow(0), flow(shards)
    for one in (plain, wide):
        declare(one)
        for name in ("totals", "total_names", "large"):
            add_view(one, name)
        for at in range(6):
            tick(one, [(at % 3, 2, at, False), (at, 1, 0, False)])
    for view, row in (("total_names", {"k": 1}), ("large", {"k": 2}), ("totals", {"k": 5})):
        one, other = (found.why(view, row) for found in (plain, wide))
        assert {name: Counter(map(str, rows.to_pylist())) for name, rows in one.sources.items()} == {
            name: Counter(map(str, rows.to_pylist())) for name, rows in other.sources.items()
        }


@pytest.mark.parametrize(("before", "after"), [(0, 3), (2, 5), (5, 1), (3, 3)])
def test_a_checkpoint_is_loaded_on_another_number_of_shards(before: int, after: int, tmp_path: Any) -> None:
    with small_state():
        memory, saved = flow(0), flow(before)
        for one in (memory, saved):
            declare(one)
            for name in VIEWS:
                add_view(one, name)
            rng = random.Random(SEED)
            for _ in range(6):
                tick(one, random_change(rng))
        saved.checkpoint(tmp_path)
        images = saved._storage.checkpoints(tmp_path).require().images
        other = flow(after)
        other._graph.kernel.load(images)
        declare(other)
        for name in memory._graph.views:
            add_view(other, name)
        other._graph.kernel.load({})
        assert answers(other) == answers(memory)
        for one in (memory, other):
            rng = random.Random(SEED + 1)
            for _ in range(4):
                tick(one, random_change(rng))
        assert answers(other) == answers(memory)


def test_lookups_by_part_of_a_key_and_of_null() -> None:
    wide = flow(3)
    wide.register_source("rows", "a BIGINT, b BIGINT, c BIGINT", primary_key=["a", "b"])
    wide.tick("rows", [{"a": a, "b": b, "c": None} for a in range(3) for b in range(4)])
    assert wide.lookup("rows", a=1).num_rows == 4
    assert wide.lookup("rows", c=None).num_rows == 0 or wide.lookup("rows", c=None).num_rows == 12
    assert wide.lookup("rows", a=1, b=2).to_pylist() == [{"a": 1, "b": 2, "c": None}]
    assert isinstance(wide.snapshot("rows"), pa.Table)
