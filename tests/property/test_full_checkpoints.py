"""A full checkpoint is the flow: before further ticks and after them, whatever was cut off while it was written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engine import full_checkpoint
from penstock.state.full_folder import MANIFEST, FullFolder
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import add_view, answers, declare, opened, random_change, tick
from twin.full import FullSchedule, contents
from twin.rows import small_state

SHORT = 12
CALLS_AT_MOST = 100


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 300))]
)
def test_a_flow_goes_on_as_its_full_checkpoint(number: int, tmp_path: Path) -> None:
    with small_state():
        FullSchedule(SEED + number, tmp_path).run(25)


def some_flow(ticks: int = 3) -> ps.IncrementalFlow:
    flow = opened()
    declare(flow)
    for name in ("totals", "named", "top_total", "walked"):
        add_view(flow, name)
    rng = random.Random(5)
    for _ in range(ticks):
        tick(flow, [*random_change(rng), (1, 2, 0, False)])
    return flow


def written(flow: ps.IncrementalFlow, folder: Path, disk: DyingDisk) -> None:
    staged = full_checkpoint.stage(flow._graph, "flow")
    FullFolder(folder, disk).write(staged.flow, staged.tables)


@pytest.mark.parametrize("remains", [0.0, 0.5, 1.0])
def test_a_power_cut_at_any_write_leaves_the_last_whole_one(remains: float, tmp_path: Path) -> None:
    flow = some_flow()
    earlier = answers(flow)
    flow.checkpoint_full(tmp_path / "0")
    tick(flow, [(2, 2, 0, False)])
    for calls in range(1, CALLS_AT_MOST):
        folder = tmp_path / str(calls)
        some = some_flow()
        some.checkpoint_full(folder)
        tick(some, [(2, 2, 0, False)])
        disk = DyingDisk(calls, remains)
        try:
            written(some, folder, disk)
        except PowerCut:
            assert answers(ps.IncrementalFlow.load(folder)) in (earlier, answers(flow)), f"call {calls}"
        if not disk.dead:
            assert answers(ps.IncrementalFlow.load(folder)) == answers(flow)
            assert {file.name[:11] for file in folder.iterdir()} == {"full-000002", MANIFEST[:11]}
            return
    raise AssertionError("a checkpoint makes more calls than that")


def code_of(load: Callable[[], object]) -> str | None:
    """The code of the error that loading raises; None when it raises none."""
    try:
        load()
    except ps.StateError as error:
        return error.code
    return None


def test_whatever_is_changed_cut_off_missing_foreign_or_newer_is_refused(tmp_path: Path) -> None:
    flow = some_flow()
    flow.checkpoint_full(tmp_path)
    before = answers(flow)
    for file in sorted(tmp_path.iterdir()):
        content = file.read_bytes()
        for at in range(0, len(content), 31):
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            code = code_of(lambda: _same(tmp_path, before))
            assert code in ("STATE_CHECKPOINT_DAMAGED", "STATE_CHECKPOINT_VERSION", None)
            # Blanks of the manifest are nobody's.
            assert code is not None or file.name == MANIFEST
        for size in (0, 1, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:size])
            assert code_of(lambda: ps.IncrementalFlow.load(tmp_path)) == "STATE_CHECKPOINT_DAMAGED"
        file.unlink()
        missing = "STATE_NO_CHECKPOINT" if file.name == MANIFEST else "STATE_CHECKPOINT_DAMAGED"
        assert code_of(lambda: ps.IncrementalFlow.load(tmp_path)) == missing
        file.write_bytes(content)
    manifest = tmp_path / MANIFEST
    saved = json.loads(manifest.read_text())
    for change, code in (
        ({"version": 9}, "STATE_CHECKPOINT_VERSION"),
        ({"format": "another"}, "STATE_CHECKPOINT_DAMAGED"),
    ):
        manifest.write_text(json.dumps({**saved, **change}))
        assert code_of(lambda: ps.IncrementalFlow.load(tmp_path)) == code
    # A document that somebody has laid out anew is the same one.
    manifest.write_text(json.dumps(saved, sort_keys=True))
    assert answers(ps.IncrementalFlow.load(tmp_path)) == before


def _same(path: Path, expected: object) -> None:
    assert answers(ps.IncrementalFlow.load(path)) == expected


def test_the_rows_are_plain_parquet(tmp_path: Path) -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT, note STRING")
    flow.tick("orders", [{"id": 1, "note": "a"}, {"id": 1, "note": "a"}, {"id": 2, "note": None}])
    flow.checkpoint_full(tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    rows = sorted(pq.read_table(file).to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "note": "a", "_weight": 2}, {"id": 2, "note": None, "_weight": 1}]


def test_a_folder_has_one_kind_of_checkpoints(tmp_path: Path) -> None:
    flow = some_flow()
    flow.checkpoint(tmp_path / "one")
    flow.checkpoint_full(tmp_path / "other")
    with pytest.raises(ps.StateError, match="build on each other") as refused:
        flow.checkpoint_full(tmp_path / "one")
    assert refused.value.code == "STATE_CHECKPOINT_KIND"
    with pytest.raises(ps.StateError, match="a full checkpoint") as refused:
        flow.checkpoint(tmp_path / "other")
    assert refused.value.code == "STATE_CHECKPOINT_KIND"


def test_a_durable_flow_is_restored_from_a_full_checkpoint(tmp_path: Path) -> None:
    flow = some_flow()
    flow.checkpoint_full(tmp_path / "full")
    durable = opened(tmp_path / "flow")
    durable.register_source("others", "k BIGINT")
    durable.restore(tmp_path / "full")
    tick(durable, [(1, 1, 1, False)])
    durable.close()
    tick(flow, [(1, 1, 1, False)])
    again = opened(tmp_path / "flow")
    assert contents(again) == contents(flow)
    again.close()


def test_a_plan_of_another_version_without_a_text_is_refused(tmp_path: Path) -> None:
    flow = some_flow()
    flow.checkpoint_full(tmp_path)
    view = json.loads((tmp_path / MANIFEST).read_text())["flow"]["views"][0]
    view["plan"]["version"] = 99
    with pytest.raises(ps.StateError) as refused:
        full_checkpoint._view(view)
    assert refused.value.code == "STATE_PLAN_VERSION"
