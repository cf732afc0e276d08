"""Groups behind the watermark are freed, and nobody can tell from the answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.sharded import ShardedKernel
from penstock.engine import replay
from penstock.engine.checkpoint import FlowCheckpoints
from penstock.engine.registration import Prepared
from penstock.operators.closing import Closing
from penstock.plan import node as plan
from seed import SEED
from twin.events import (
    BEGIN,
    CLOSING,
    OF_ALL_ROWS,
    VIEWS,
    Events,
    add_view,
    answers,
    event_flow,
    nothing_closes,
)
from twin.faults import broken_at
from twin.flows import no_fragment
from twin.rows import small_state
from twin.scratch import tiny_budget

NO_TIME = {"k": 0, "ts": None, "v": 1, "x": 0.1, "_weight": 1}


def closing_operators(flow: ps.IncrementalFlow) -> list[Closing]:
    vertices = flow._graph.kernel._circuit.vertices.values()  # type: ignore[attr-defined]
    return [vertex.operator for vertex in vertices if isinstance(vertex.operator, Closing)]


def finished(flow: ps.IncrementalFlow) -> list[int]:
    """How many groups each operator has finished."""
    return [operator._groups._finished.count for operator in closing_operators(flow)]


def remembered(flow: ps.IncrementalFlow) -> Any:
    return flow._graph.state.to_dict()


@pytest.mark.parametrize(
    ("number", "ticks"),
    [*((n, 20) for n in range(2)), *(pytest.param(n, 40, marks=pytest.mark.soak) for n in range(100))],
)
def test_a_flow_that_frees_closed_groups_answers_as_one_that_does_not(
    number: int, ticks: int, tmp_path: Path
) -> None:
    events = Events(SEED + number)
    with small_state():
        freeing = event_flow(tiny_budget(tmp_path / "scratch") if number % 2 else None)
        with nothing_closes():
            keeping = event_flow()
        assert len(closing_operators(freeing)) == len(CLOSING)
        assert not closing_operators(keeping)
        for at in range(ticks):
            rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
            changes = [flow.tick("events", rows) for flow in (freeing, keeping)]
            assert changes[0].rows_out == changes[1].rows_out
            assert changes[0].late == changes[1].late
            if at % 15 == 14:
                freeing.checkpoint(tmp_path / "checkpoint")
                freeing = ps.IncrementalFlow.load(tmp_path / "checkpoint", clock=lambda: 0)
            if at % 5 == 4:
                assert answers(freeing) == answers(keeping), f"tick {at}"
                assert remembered(freeing) == remembered(keeping)
        # Whatever times the seed has brought, all of them are closed in the end, some groups in every tick.
        for rows in (events.much_later(), *([NO_TIME] for _ in range(30))):
            for flow in (freeing, keeping):
                flow.tick("events", ps.DeltaBatch.weighted(rows))
        assert answers(freeing) == answers(keeping)
        assert all(count > 0 for count in finished(freeing))


def test_shards_free_closed_groups_and_answer_as_one_process() -> None:
    events = Events(SEED)
    with small_state():
        in_shards, alone = event_flow(kernel=ShardedKernel(InProcess(3))), event_flow()
        for at in range(25):
            rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
            changes = [flow.tick("events", rows) for flow in (in_shards, alone)]
            assert changes[0].late == changes[1].late
            if at % 5 == 4:
                assert answers(in_shards) == answers(alone), f"tick {at}"
        for rows in (events.much_later(), [NO_TIME], [NO_TIME]):
            for flow in (in_shards, alone):
                flow.tick("events", ps.DeltaBatch.weighted(rows))
        assert min(finished(alone)) > 0
        assert answers(in_shards) == answers(alone)


def test_a_tick_that_is_rejected_changes_no_generation() -> None:
    events = Events(SEED)
    flow, twin = (event_flow(views=["per_window", "sliding"]) for _ in range(2))
    for _ in range(30):
        rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
        too_much = {**NO_TIME, "v": 2**63 - 1, "_weight": 2}
        with pytest.raises(ps.DataError):
            flow.tick("events", ps.DeltaBatch.weighted([*rows.to_pylist(), too_much]))
        for one in (flow, twin):
            one.tick("events", rows)
        saved = [one._graph.kernel.save() for one in (flow, twin)]
        assert [image.values for image in saved[0].values()] == [image.values for image in saved[1].values()]
    assert answers(flow, ["per_window", "sliding"]) == answers(twin, ["per_window", "sliding"])


def test_a_view_that_is_registered_later_has_all_groups() -> None:
    events = Events(SEED)
    flow = event_flow(views=["per_window"])
    whole = event_flow()
    for _ in range(30):
        rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
        for one in (flow, whole):
            one.tick("events", rows)
    for name in VIEWS:
        add_view(flow, name)
    assert answers(flow) == answers(whole)


def test_a_source_whose_closed_rows_leave_feeds_the_same_answers(tmp_path: Path) -> None:
    events = Events(SEED)
    with small_state():
        freeing, keeping = event_flow(retain="open"), event_flow()
        for at in range(40):
            rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
            summaries = [flow.tick("events", rows) for flow in (freeing, keeping)]
            assert summaries[0].rows_out == summaries[1].rows_out
            if at == 20:
                freeing.checkpoint(tmp_path)
                freeing = ps.IncrementalFlow.load(tmp_path, clock=lambda: 0)
        assert answers(freeing) == answers(keeping)
        rows_left = freeing._graph.kernel.rows("events").weights.sum()
        assert rows_left < 0.8 * keeping._graph.kernel.rows("events").weights.sum()


def test_rows_that_have_left_their_source_stay_in_views(tmp_path: Path) -> None:
    events, names = Events(SEED), list(OF_ALL_ROWS)
    with small_state():
        freeing, keeping = event_flow(views=names, retain="open"), event_flow(views=names)
        for at in range(60):
            rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
            for flow in (freeing, keeping):
                flow.tick("events", rows)
            if at % 20 == 19:
                assert answers(freeing, names) == answers(keeping, names)
                freeing.checkpoint(tmp_path)
                freeing = ps.IncrementalFlow.load(tmp_path, clock=lambda: 0)
        assert answers(freeing, names) == answers(keeping, names)
        rows_left = freeing._graph.kernel.rows("events").weights.sum()
        assert rows_left < 0.8 * keeping._graph.kernel.rows("events").weights.sum()


@pytest.mark.parametrize("retain", ["all", "used"])
def test_a_full_checkpoint_goes_on_with_all_groups(retain: str, tmp_path: Path) -> None:
    events = Events(SEED)
    with small_state():
        flow = event_flow(retain=retain)
        for _ in range(20):
            flow.tick("events", ps.DeltaBatch.weighted([*events.tick(), NO_TIME]))
        for rows in (events.much_later(), [NO_TIME], [NO_TIME]):
            flow.tick("events", ps.DeltaBatch.weighted(rows))
        assert min(finished(flow)) > 0
        flow.checkpoint_full(tmp_path)
        copy = ps.IncrementalFlow.load(tmp_path, clock=lambda: 0, memory=1)
        assert answers(copy) == answers(flow)
        for _ in range(30):
            rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
            changes = [one.tick("events", rows) for one in (flow, copy)]
            assert changes[0].rows_out == changes[1].rows_out
            assert changes[0].late == changes[1].late
        assert answers(copy) == answers(flow)
        assert remembered(copy) == remembered(flow)
        assert min(finished(copy)) > 0


def test_the_rows_behind_closed_groups_are_known() -> None:
    events, names = Events(SEED), ["per_hour", "per_day", "per_time", "of_windows"]
    flow = event_flow(views=["per_window", *names])
    with nothing_closes():
        keeping = event_flow(views=["per_window", *names])
    for _ in range(30):
        rows = ps.DeltaBatch.weighted([*events.tick(), NO_TIME])
        for one in (flow, keeping):
            one.tick("events", rows)
    assert min(finished(flow)) > 0
    for name in names:
        for row in flow.snapshot(name).to_pylist():
            key = {column: row[column] for column in ("k", "t0", "ts") if column in row}
            behind = [one.why(name, key)["events"] for one in (flow, keeping)]
            assert behind[0].num_rows > 0
            assert behind[0] == behind[1]


def test_ticks_of_the_past_have_their_groups(tmp_path: Path) -> None:
    events, names = Events(SEED), ["per_window", "of_windows", "times"]
    with small_state():
        flow = event_flow(
            tiny_budget(tmp_path / "scratch"), views=names, path=tmp_path / "flow", retain="open"
        )
        history = {}
        for _ in range(40):
            flow.tick("events", ps.DeltaBatch.weighted([*events.tick(), NO_TIME]))
            history[flow._graph.state.ticks] = answers(flow, names)
        assert min(finished(flow)) > 0
        ticks = [tick for tick in flow.ticks() if tick in history]
        assert len(ticks) > 3
        for tick in ticks:
            assert answers(flow, names, at_tick=tick) == history[tick]
        with pytest.raises(ps.StateError) as refused:
            flow.snapshot("events", at_tick=ticks[0])
        assert refused.value.code == "FLOW_NOT_RETAINED"
        flow.close()


def test_a_state_that_is_missing_is_not_made_from_the_rows_that_are_left(tmp_path: Path) -> None:
    events = Events(SEED)
    for retain in ("all", "open"):
        flow = event_flow(views=["per_window", "of_windows"], retain=retain)
        for _ in range(20):
            flow.tick("events", ps.DeltaBatch.weighted([*events.tick(), NO_TIME]))
        flow.checkpoint(tmp_path / retain)
        saved = FlowCheckpoints(tmp_path / retain).require()
        without = replace(
            saved, images={key: image for key, image in saved.images.items() if key.role != "generations"}
        )
        if retain == "all":
            graph, _ = replay.rebuilt(without, ps.Session.embedded)
            assert len(graph.kernel.rows("per_window")) == flow.snapshot("per_window").num_rows
            continue
        with pytest.raises(ps.StateError, match="not in the checkpoint") as refused:
            replay.rebuilt(without, ps.Session.embedded)
        assert refused.value.code == "FLOW_NOT_RETAINED"


def test_a_change_by_key_leaves_rows_behind_the_watermark_as_they_are() -> None:
    def at(minute: int, value: int) -> dict[str, object]:
        return {"k": value % 2, "ts": BEGIN + timedelta(minutes=minute), "v": value, "x": 0.1}

    flow = event_flow()
    flow.tick("events", [at(0, 1), at(60, 2)])
    for minute in range(61, 90):
        flow.tick("events", ps.DeltaBatch.upserts([at(minute, minute)], keys=["k"]))
    values = {row["v"] for row in flow.snapshot("events").to_pylist()}
    assert 1 in values  # closed long ago
    with nothing_closes():
        twin = event_flow()
    twin.tick("events", [at(0, 1), at(60, 2)])
    for minute in range(61, 90):
        twin.tick("events", ps.DeltaBatch.upserts([at(minute, minute)], keys=["k"]))
    assert answers(flow) == answers(twin)


def open_bytes(flow: ps.IncrementalFlow) -> int:
    """The state without the rows of finished groups."""
    finished_rows = sum(operator._groups._finished.memory() for operator in closing_operators(flow))
    return flow._graph.kernel.memory() - finished_rows


def test_ten_thousand_windows_have_bounded_state() -> None:
    names = ["per_window", "sliding", "of_windows"]
    flow = event_flow(views=names, retain="open")
    minutes, sizes = 10_000, []
    for start in range(0, minutes, 25):
        rows = [
            {"k": user, "ts": BEGIN + timedelta(minutes=minute), "v": minute, "x": 0.1}
            for minute in range(start, start + 25)
            for user in range(2)
        ]
        flow.tick("events", rows)
        sizes.append(open_bytes(flow))
    early, late = max(sizes[40:120]), max(sizes[-120:])
    assert late <= early * 1.1
    assert flow.snapshot("per_window").num_rows == 2 * minutes
    assert flow.snapshot("of_windows").num_rows == minutes
    with nothing_closes():
        keeping = event_flow(views=names)
    bulk = [
        {"k": user, "ts": BEGIN + timedelta(minutes=minute), "v": minute, "x": 0.1}
        for minute in range(minutes)
        for user in range(2)
    ]
    keeping.tick("events", bulk)
    assert answers(flow, names) == answers(keeping, names)
    assert keeping._graph.kernel.memory() > 5 * late


def test_what_a_source_with_open_rows_cannot_do_is_refused(tmp_path: Path) -> None:
    flow = event_flow(views=[], retain="open")
    add_view(flow, "per_window")
    with pytest.raises(ps.StateError) as refused:
        flow._install(Prepared(plan.View("times", "", VIEWS["times"]), no_fragment), "suspend")
    assert refused.value.code == "FLOW_NOT_RETAINED"
    flow.tick("events", [{"k": 1, "ts": BEGIN, "v": 1, "x": 0.1}])
    refusals = (
        lambda: add_view(flow, "times"),
        lambda: flow.snapshot("events"),
        lambda: flow.lookup("events", k=1),
        lambda: flow.feed_snapshot("events", [{"k": 1, "ts": BEGIN, "v": 1, "x": 0.1}]),
        flow.force_diff_based,
        lambda: flow.checkpoint_full(tmp_path),
        lambda: flow.why("per_window", {"k": 1}),
    )
    for action in refusals:
        with pytest.raises(ps.StateError) as refused:
            action()
        assert refused.value.code == "FLOW_NOT_RETAINED"
    assert list(tmp_path.iterdir()) == []
    add_view(flow, "of_windows")
    assert flow.snapshot("of_windows").num_rows == 1
    with pytest.raises(ps.StateError, match="its rows leave it"):
        flow.why("of_windows", {"n": 1})
    other = ps.IncrementalFlow()
    for options in ({}, {"lateness": "1 minute", "primary_key": "k"}):
        with pytest.raises(ps.ConfigError, match="needs a lateness"):
            other.register_source("events", "k BIGINT, ts TIMESTAMP", retain="open", **options)


def test_explain_says_what_is_freed_and_what_is_not() -> None:
    flow = event_flow()
    states = {name: [line.state for line in flow.explain(name).operators if line.state] for name in VIEWS}
    freed = "frees groups behind the watermark"
    assert {name for name, lines in states.items() if lines[0] == freed} == CLOSING
    assert states["all"] == ["keeps its one group"]
    assert states["users"][0].startswith("keeps all groups: no key follows the event time")
    assert f"state: {freed}" in str(flow.explain("per_window"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_fault_at_a_call_of_a_tick_tears_no_generation() -> None:
    names = ["per_window", "of_windows"]
    events = Events(SEED)
    changes = [ps.DeltaBatch.weighted([*events.tick(), NO_TIME]) for _ in range(12)]
    clean, expected = event_flow(views=names), []
    for change in changes:
        clean.tick("events", change)
        expected.append(answers(clean, names))
    assert min(finished(clean)) > 0
    for call in range(1 + SEED % 1_009, 50_000, 1_009):
        flow = event_flow(views=names)
        hit = False
        for at, change in enumerate(changes):
            ticks = flow._graph.state.ticks
            hit |= broken_at(call, partial(flow.tick, "events", change))
            if flow._graph.state.ticks == ticks:
                flow.tick("events", change)
            assert answers(flow, names) == expected[at], f"call {call}, tick {at}"
        if not hit:
            break
    else:
        raise AssertionError("a tick makes more calls than that")
