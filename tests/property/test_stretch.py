"""A flow whose ticks were replayed in stretches is the flow that has stepped every tick."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.local import LocalKernel
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine import stretch
from penstock.engine.graph import Graph
from penstock.engine.registration import Prepared
from penstock.engine.tick import StagedTick, stage_change
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column
from penstock.plan.node import Field
from penstock.sinks.view_sink import VIEW_SINKS
from seed import SEED
from twin.durable import add_view, answers, declare, opened
from twin.flows import SUM, no_fragment
from twin.rows import small_state
from twin.stretch import NEVER, Pair
from twin.view_sink import KINDS, STORES, Store

SHORT = 8
SEEDS = [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 300))]
HOUR = 3_600_000_000


@contextmanager
def steps() -> Iterator[list[int]]:
    """The numbers of the ticks that kernels step, of a stretch the last one."""
    numbers: list[int] = []
    step = LocalKernel.step

    def noted(kernel: LocalKernel, changes: Mapping[str, Delta], tick: Tick, **options: Any) -> Any:
        numbers.append(tick.number)
        return step(kernel, changes, tick, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalKernel, "step", noted)
        yield numbers


def run(pair: Pair, rounds: int) -> None:
    for _ in range(rounds):
        pair.add_views()
        for _ in range(pair.rng.randint(1, 8)):
            pair.tick()
        if pair.rng.random() < 0.3:
            pair.drop_view()
        for _ in range(pair.rng.randint(1, 4)):
            pair.tick()
        pair.reopen()


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.parametrize("number", SEEDS)
def test_replayed_stretches_are_the_ticks(number: int, special: bool, tmp_path: Path) -> None:
    pair = Pair(SEED + number, tmp_path / "flow", special=special)
    with small_state():
        run(pair, 3)


@pytest.mark.parametrize("behind", [False, True], ids=["before the step", "behind it"])
@pytest.mark.parametrize("number", SEEDS[:: SHORT // 2])
def test_a_stretch_that_fails_is_stepped_tick_by_tick(
    number: int, behind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(SEED + number)
    failed: list[Graph] = []

    def failing(graph: Graph, *arguments: Any) -> StagedTick:
        staged = stage_change(graph, *arguments) if behind else None
        if staged is None or random.random() < 0.7:
            failed.append(graph)
            raise ps.DataError("it fails")
        return staged

    monkeypatch.setattr(stretch, "stage_change", failing)
    with small_state():
        # Some flows have no stretch at all: a view reads the time.
        for attempt in range(20):
            run(Pair(random.getrandbits(32), tmp_path / f"flow{attempt}", special=False), 3)
            if failed:
                break
    assert failed


def filled(path: Path, ticks: int, *, clock: int = 0, **views: plan.Node) -> ps.IncrementalFlow:
    """A closed flow of many ticks, each `clock` microseconds behind the last one."""
    flow = ps.IncrementalFlow(path=path, clock=iter(range(0, NEVER * 10**6, clock or 1)).__next__)
    flow.register_source("rows", "k BIGINT, v BIGINT, s STRING")
    for name, root in views.items():
        flow._install(Prepared(plan.View(name, "", root), no_fragment), "reject")
    for number in range(ticks):
        flow.tick("rows", [{"k": number % 3, "v": number, "s": f"T{number % 24:02}:00:00"}], ordinal=number)
    flow.close()
    return flow


def test_ticks_that_nobody_looked_between_are_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled(tmp_path / "flow", 50)
    with steps() as numbers, opened(tmp_path / "flow", checkpoint_every=NEVER) as flow:
        assert flow.ticks()[-1] == 50
        assert flow.source_info("rows").ordinal == 49
        assert answers(flow) == answers(before)
    assert numbers == [50]
    monkeypatch.setattr(stretch, "MOST_TICKS", 20)
    with steps() as numbers, opened(tmp_path / "flow", checkpoint_every=NEVER):
        assert numbers == [20, 40, 50]
    monkeypatch.setattr(stretch, "MOST_ROWS", 15)
    with steps() as numbers, opened(tmp_path / "flow", checkpoint_every=NEVER):
        assert numbers == [15, 30, 45, 50]
    monkeypatch.setattr(stretch, "MOST_BYTES", 1)
    with steps() as numbers, opened(tmp_path / "flow", checkpoint_every=NEVER):
        assert numbers == list(range(1, 51))


def test_the_past_is_replayed_in_stretches(tmp_path: Path) -> None:
    filled(tmp_path / "flow", 50)
    with opened(tmp_path / "flow", checkpoint_every=NEVER) as flow, steps() as numbers:
        assert flow.snapshot("rows", at_tick=20).num_rows == 20
        assert flow.snapshot("rows", at_tick=21).num_rows == 21
        assert flow.snapshot("rows", at_tick=40).num_rows == 40
        assert numbers == [20, 21, 40]
        assert flow.snapshot("rows", at_tick=3).num_rows == 3
    assert numbers == [20, 21, 40, 3]


def test_texts_without_a_date_have_that_of_their_tick(tmp_path: Path) -> None:
    options = (("evalMode", "ANSI"), ("timeZoneId", "UTC"))
    moment = Call("Cast", (Column(0, "string"),), "timestamp", True, options)
    fields = (Field("t", "timestamp"),)
    read = plan.Project(fields, plan.Scan((Field("s", "string"),), "rows", (2,)), (moment,))
    count = plan.AggregateCall("Count", (), "bigint")
    moments = plan.Aggregate((*fields, Field("n", "bigint")), read, (0,), (count,))
    before = filled(tmp_path / "flow", 50, clock=HOUR // 2, moments=moments)
    assert len({row["t"].date() for row in before.snapshot("moments").to_pylist()}) > 1
    with opened(tmp_path / "flow", checkpoint_every=NEVER) as flow:
        assert answers(flow) == answers(before)
    before = filled(tmp_path / "other", 50, clock=HOUR // 1000, moments=moments)
    with steps() as numbers, opened(tmp_path / "other", checkpoint_every=NEVER) as flow:
        assert answers(flow) == answers(before)
        assert len(numbers) == 1


def test_sinks_lateness_time_and_suspension_need_every_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ticks between have done can be told afterwards, so that none is left out."""

    def flow_with(name: str, **options: Any) -> ps.IncrementalFlow:
        flow = opened(tmp_path / name, checkpoint_every=NEVER)
        flow.register_source("times", "t TIMESTAMP_NTZ", **options)
        declare(flow)
        add_view(flow, "totals")
        return flow

    late = flow_with("late", lateness={"column": "t", "delay": "1 minute"})
    timed = flow_with("timed")
    scan = plan.Scan((Field("k", "bigint"),), "rows", (0,))
    now = Call("CurrentTimestamp", (), "timestamp", False)
    root = plan.Project((Field("k", "bigint"), Field("t", "timestamp")), scan, (Column(0, "bigint"), now))
    timed._install(Prepared(plan.View("timed", "", root, uses_time=True), no_fragment), "reject")
    suspending = flow_with("suspending")
    suspending._install(
        Prepared(plan.View("maybe", "", plan.Scan((Field("k", "bigint"),), "rows", (0,))), no_fragment),
        "suspend",
    )
    followed = flow_with("followed")
    monkeypatch.setitem(VIEW_SINKS.builtin, "changelog", KINDS["changelog"])  # type: ignore[arg-type]
    monkeypatch.setitem(STORES, "totals", Store(random.Random(0)))
    followed.sink("totals", "changelog", place="totals")
    for flow in (late, timed, suspending, followed):
        for number in range(5):
            flow.tick("rows", [{"k": number, "v": 1, "w": 1}])
        flow.close()
        assert flow._runner.directory is not None
        with (
            steps() as numbers,
            opened(Path(flow._runner.directory.location), checkpoint_every=NEVER) as again,
        ):
            assert answers(again) == answers(flow)
        assert numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("retain", ["all", "used"])
@pytest.mark.parametrize(
    ("text", "key"), [("STRING", "k"), ("STRING COLLATE UTF8_LCASE", "k"), ("STRING", ("j", "k"))]
)
def test_keys_of_every_kind_are_what_their_last_tick_made_of_them(
    text: str, key: str | tuple[str, ...], retain: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    fields = (Field("j", "bigint"), Field("v", "bigint"))
    root = plan.Aggregate(fields, plan.Scan(fields, "rows", (1, 2)), (0,), (SUM,))
    memory, durable = opened(), opened(tmp_path / "flow", checkpoint_every=NEVER)
    for flow in (memory, durable):
        flow.register_source(
            "rows", f"k {text}, j BIGINT, v BIGINT, t STRING", primary_key=key, retain=retain
        )
        flow._install(Prepared(plan.View("totals", "", root), no_fragment), "reject")
    present: dict[object, int] = {}
    for _ in range(40):
        events: list[dict[str, Any]] = []
        inserted: set[object] = set()
        for _ in range(rng.randint(1, 4)):
            k, j, v = rng.choice("aAbB"), rng.randint(0, 2), rng.randint(0, 9)
            row: dict[str, Any] = {"k": k, "j": j, "v": v, "t": "x"}
            of_row: object = (j, k) if key != "k" else k.lower() if "LCASE" in text else k
            if of_row in present and of_row not in inserted and rng.random() < 0.4:
                # The retracted row may be the stored one, or have its key alone.
                events.append({**row, "v": rng.choice([v, present.pop(of_row)]), "_weight": -1})
            else:
                events.append({**row, "_weight": 1})
                present[of_row] = v
                inserted.add(of_row)
        for flow in (memory, durable):
            flow.tick("rows", ps.DeltaBatch.weighted(events))
    durable.close()
    with steps() as numbers, opened(tmp_path / "flow", checkpoint_every=NEVER) as again:
        assert again.snapshot("totals").sort_by("j").equals(memory.snapshot("totals").sort_by("j"))
        if retain == "all":
            assert answers(again) == answers(memory)
    assert numbers == [40]
