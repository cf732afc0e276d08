"""A durable flow as one step of a query, without views: what it knows of epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import config
from penstock.engine.epoch_flow import EpochFlow


class NoSession:
    """A session of which nothing is asked but its settings."""

    settings = config.load()


def _opened(path: Path, checkpoint_every: int = 1) -> EpochFlow:
    moments: Iterator[int] = iter(range(10**15, 10**16))
    session: Any = NoSession()
    return EpochFlow(session, path, clock=lambda: next(moments), checkpoint_every=checkpoint_every)


def _rows(*keys: int) -> ps.DeltaBatch:
    return ps.DeltaBatch.inserts([{"k": key, "v": str(key)} for key in keys])


def test_epochs_are_known_again(tmp_path: Path) -> None:
    flow = _opened(tmp_path)
    flow.add_source("rows", "k BIGINT, v STRING", primary_key=["k"])
    assert (flow.epoch, flow.last_changes) == (None, None)
    for epoch, rows in ((4, _rows(1, 2)), (5, _rows(1))):
        flow.tick(epoch, {"rows": rows})
    flow.tick(6, {})
    assert flow.epoch == 6
    flow.close()
    again = _opened(tmp_path)
    assert again.epoch == 6
    assert again.last_changes == {}
    assert len(again.rows("rows")) == 2
    assert again.sources.keys() == {"rows"}
    again.close()


def test_the_log_is_cut_when_an_epoch_is_final_and_never_before(tmp_path: Path) -> None:
    flow = _opened(tmp_path)
    flow.add_source("rows", "k BIGINT, v STRING")
    for epoch in range(3):
        flow.tick(epoch, {"rows": _rows(epoch)})
    flow.wait()
    assert not list(tmp_path.glob("checkpoints/checkpoint-*"))
    flow.finalize()
    flow.wait()
    assert list(tmp_path.glob("checkpoints/checkpoint-*"))
    assert flow.last_changes is None
    flow.close()
    again = _opened(tmp_path)
    assert (again.epoch, again.last_changes, len(again.rows("rows"))) == (2, None, 3)
    again.close()


def test_rows_that_belong_to_no_epoch_do_not_hide_the_last_one(tmp_path: Path) -> None:
    flow = _opened(tmp_path, checkpoint_every=10**9)
    flow.add_source("rows", "k BIGINT, v STRING")
    flow.tick(0, {"rows": _rows(1)})
    rows = flow.rows("rows")
    flow.add_source("more", "k BIGINT, v STRING")
    flow.fill("more", rows)
    flow.close()
    again = _opened(tmp_path)
    assert again.epoch == 0
    # The changes are those of views, of which there are none.
    assert again.last_changes == {}
    assert again.has_rows_of_before("more")
    assert len(again.rows("more")) == 1
    again.close()


def test_a_tick_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    flow = _opened(tmp_path)
    flow.add_source("rows", "k BIGINT, v STRING", primary_key=["k"])
    nothing = ps.DeltaBatch.inserts([{"k": None, "v": "a"}])
    with pytest.raises(ps.DataError):
        flow.tick(0, {"rows": nothing})
    assert flow.epoch is None
    flow.tick(0, {"rows": ps.DeltaBatch.deletes([{"k": 5, "v": None}])})
    assert (flow.epoch, len(flow.rows("rows"))) == (0, 0)
    flow.close()
