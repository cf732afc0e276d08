"""`penstock state`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import config
from penstock.backend import Backend, Job, JobState, Lease, Owner, open_backend
from penstock.backend.job_values import JobValues
from penstock.cli.main import main
from penstock.pipeline.outside import OUTSIDE, Note, note_resources, notes
from penstock.sources.base import ExternalResource
from penstock.transforms.base import TransformContext
from penstock.transforms.dynamic_table.memory import MemoryTable


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_STATE", raising=False)
    monkeypatch.chdir(tmp_path)
    with open_backend(config.load()) as opened:
        yield opened


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for part in ("offsets", "commits", "state/0"):
        (tmp_path / "checkpoint" / part).mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text("{}")
    (tmp_path / "checkpoint" / ".metadata.crc").touch()
    return tmp_path / "checkpoint"


@pytest.fixture
def lease(backend: Backend, checkpoint: Path) -> Lease:
    """A job that has run, with everything that a job keeps."""
    lease = backend.leases.acquire("orders", Owner("elsewhere", 4711), ttl_ms=60_000)
    backend.jobs.record(Job("orders", checkpoint=str(checkpoint)), lease)
    backend.epochs.commit(lease, 3, {"to": 9})
    backend.state.put("orders", "schema", {"id": "BIGINT"}, namespace="source")
    backend.state.put("orders", "raw", b"\x01\x02")
    return lease


def end(backend: Backend, lease: Lease) -> None:
    backend.jobs.update(lease, state=JobState.STOPPED)
    backend.leases.release(lease)


def test_the_list(
    backend: Backend, lease: Lease, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.state.put("only values", "k", 1)
    assert main(["state", "list", "--output", "json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["name"], first["values"], first["last_epoch"]) == ("only values", 1, None)
    assert second == {
        "name": "orders",
        "held": "elsewhere:4711",
        "last_epoch": 3,
        "last_epoch_at": second["last_epoch_at"],
        "values": 2,
        "checkpoint": str(checkpoint),
    }
    assert main(["state", "list"]) == 0
    assert "only values" in capsys.readouterr().out


def test_show(backend: Backend, lease: Lease, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "show", "orders", "--output", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["values"] == {"raw": "AQI=", "source/schema": {"id": "BIGINT"}}
    assert shown["last_epoch_meta"] == {"to": 9}
    for key in ("schema", "source/schema"):
        assert main(["state", "show", "orders", key, "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["value"] == {"id": "BIGINT"}
    assert main(["state", "show", "orders", "ra"]) == 2
    assert "did you mean 'raw'?" in capsys.readouterr().err
    assert main(["state", "show", "order"]) == 2
    assert "did you mean 'orders'?" in capsys.readouterr().err


def test_reset_is_refused_while_the_job_runs(
    backend: Backend, lease: Lease, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "reset", "orders", "--yes"]) == 1
    assert "owned by process 4711 on elsewhere" in capsys.readouterr().err
    assert checkpoint.is_dir()
    assert len(backend.state.items("orders")) == 2


def test_reset_asks(
    backend: Backend, lease: Lease, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end(backend, lease)
    assert main(["state", "reset", "orders"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert checkpoint.is_dir()


def test_reset_deletes_what_the_job_keeps(
    backend: Backend, lease: Lease, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.state.put("other", "k", 1)
    end(backend, lease)
    assert main(["state", "reset", "orders", "--yes"]) == 0
    assert capsys.readouterr().out == f"'orders' is reset: {checkpoint}, 1 epoch and 2 values deleted\n"
    assert not checkpoint.exists()
    assert (backend.epochs.list("orders"), backend.state.items("orders")) == ([], {})
    assert backend.state.get("other", "k") == 1
    job = backend.jobs.get("orders")
    assert job.state is JobState.STOPPED
    assert backend.leases.acquire("orders", Owner("elsewhere", 1)).epoch == 3
    # What was there before still cannot write.
    assert not backend.leases.renew(lease)


def test_a_folder_with_other_things_is_left_alone(
    backend: Backend, lease: Lease, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end(backend, lease)
    (checkpoint / "thesis.txt").write_text("years of work")
    assert main(["state", "reset", "orders", "--yes"]) == 1
    assert "holds other things too: thesis.txt" in capsys.readouterr().err
    assert (checkpoint / "offsets").is_dir()
    assert len(backend.state.items("orders")) == 2
    # And the lease is free again.
    assert backend.leases.acquire("orders", Owner("elsewhere", 1)).active


@pytest.fixture
def pipeline(backend: Backend, tmp_path: Path) -> Path:
    """The folder of a pipeline that has run and ended."""
    folder = tmp_path / "pipelines" / "shop" / "main"
    for part in (
        "checkpoint/offsets",
        "checkpoint/commits",
        "checkpoint/sources/0",
        "views-1",
        "sources/table",
    ):
        (folder / part).mkdir(parents=True)
    letters = folder.parent / "dead-letters" / "parse"
    letters.mkdir(parents=True)
    (folder / "checkpoint" / "commits" / "3").write_text("v1\n{}")
    (folder / "checkpoint" / "sources" / "0" / "9.compact").write_text('v1\n{"path":"a"}\n{"path":"b"}')
    (folder / "checkpoint" / "sources" / "0" / "10").write_text('v1\n{"path":"c"}')
    offsets = [
        '{"logOffset":10}',
        '{"clicks":{"1":40,"0":12}}',
        '{"phase":"following","lsn":"0/1A"}',
        "-",
        '{"snapshot_id":7,"position":2}',
        "30",
    ]
    (folder / "checkpoint" / "offsets" / "3").write_text("\n".join(["v1", "{}", *offsets]))
    definition = {
        "pipeline": "shop.yaml",
        "folder": str(folder),
        "sources": ["files", "clicks", "table", "live", "lake", "ticks"],
        "dead_letters": {"parse": str(letters), "ask": None},
    }
    lease = backend.leases.acquire("shop", Owner("elsewhere", 4711), ttl_ms=60_000)
    checkpoint = str(folder / "checkpoint")
    backend.jobs.record(Job("shop", kind="pipeline", checkpoint=checkpoint, definition=definition), lease)
    backend.state.put("shop", "replayed", 0, namespace="replay")
    backend.state.put("shop", "table/boundary", 1, namespace="sources")
    made = [
        Note(
            node, ExternalResource(f"replication slot penstock_shop_{node}", "postgres_cdc", "db:5432/s", {})
        )
        for node in ("table", "gone")
    ]
    values = JobValues(backend, "shop", OUTSIDE)
    note_resources(values, made, everywhere=made)
    note_resources(values, made[:1], everywhere=made[:1])
    end(backend, lease)
    return folder


def test_how_far_the_sources_of_a_pipeline_were_read(
    pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "show", "shop", "offsets", "--output", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["source"]: row["read"] for row in rows} == {
        "files": "3 files",
        "clicks": "clicks-0 up to 12, clicks-1 up to 40",
        "table": "snapshot done, following: read to 0/1A",
        "live": "not read yet",
        "lake": "snapshot 7, 2 files of it",
        "ticks": "30",
        "gone": "not any more, and the replication slot penstock_shop_gone at db:5432/s is still there",
    }


def test_a_pipeline_is_reset_with_its_views(
    backend: Backend, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pipeline / "notes.txt").touch()
    assert main(["state", "reset", "shop", "--yes"]) == 1
    assert "notes.txt" in capsys.readouterr().err
    assert (pipeline / "views-1").is_dir()
    (pipeline / "notes.txt").unlink()
    assert main(["state", "reset", "shop", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert f"'shop' is reset: {pipeline}, 0 epochs and 1 value deleted" in out
    for node in ("table", "gone"):
        slot = f"replication slot penstock_shop_{node} at db:5432/s of '{node}'"
        assert f"warning: the {slot} may still be there: no file" in err
    assert "PENSTOCK_POSTGRES_URL, set to its address, is the way in" in err
    assert not pipeline.exists()
    # Letters that were replayed stay known as long as there are letters.
    assert (pipeline.parent / "dead-letters" / "parse").is_dir()
    # So does what could not be removed.
    kept = {(OUTSIDE, f"replication slot penstock_shop_{node}") for node in ("table", "gone")}
    assert backend.state.items("shop").keys() == {("replay", "replayed"), *kept}
    assert main(["state", "reset", "shop", "--yes", "--dead-letters"]) == 0
    assert "the dead letters of 'ask' are in a place of your own" in capsys.readouterr().err
    assert not (pipeline.parent / "dead-letters" / "parse").exists()
    assert backend.state.items("shop").keys() == kept


@pytest.mark.parametrize(
    ("source", "words", "hint"),
    [
        ("table", "'table' was a source of 'shop' at its last start", "penstock state reset shop"),
        ("gon", "the source 'gon' of 'shop' has left nothing", "did you mean 'gone'?"),
        ("GONE", "penstock_shop_gone at db:5432/s of 'gone' cannot be removed: no file", "PENSTOCK_POSTGRES_URL"),
    ],
)  # fmt: skip
def test_what_one_source_has_left(
    pipeline: Path, source: str, words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "reset", "shop", "--source", source, "--yes"]) in (1, 2)
    said = capsys.readouterr().err
    assert words in said
    assert hint in said
    assert pipeline.is_dir()


def test_what_another_pipeline_goes_on_from_is_not_removed(
    backend: Backend, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        Note("x", ExternalResource("replication slot penstock_shop_gone", "postgres_cdc", "db:5432/s", {}))
    ]
    lease = backend.leases.acquire("other", Owner("elsewhere", 4711), ttl_ms=60_000)
    backend.jobs.record(Job("other", kind="pipeline", definition={"group": ""}), lease)
    note_resources(JobValues(backend, "other", OUTSIDE), made, everywhere=made)
    assert main(["state", "reset", "shop", "--source", "gone", "--yes"]) == 2
    assert "has left nothing that is not used" in capsys.readouterr().err
    assert main(["state", "reset", "shop", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "penstock_shop_table" in said
    assert "penstock_shop_gone" not in said
    assert [note.node for note in notes(backend, "shop")] == ["table"]
    assert [note.node for note in notes(backend, "other")] == ["x"]


def test_nothing_of_another_system_is_removed_unasked(
    pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "reset", "shop", "--source", "gone"]) == 2
    assert "penstock state reset shop --source gone --yes" in capsys.readouterr().err


def test_resetting_a_pipeline_deletes_all_that_its_group_keeps(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pipeline" / "main"
    for part in ("checkpoint", "checkpoint-history", "views-1", "sources/orders"):
        (folder / part).mkdir(parents=True)
    lease = backend.leases.acquire("p", Owner("elsewhere", 4711), ttl_ms=60_000)
    parts = {"folder": str(folder)}
    backend.jobs.record(
        Job("p", kind="pipeline", definition=parts, checkpoint=str(folder / "checkpoint")), lease
    )
    end(backend, lease)
    assert main(["state", "reset", "p", "--yes"]) == 0
    assert str(folder) in capsys.readouterr().out
    assert not folder.exists()


def test_resetting_a_pipeline_means_all_its_groups(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leases = {}
    for name, group in (("shop", ""), ("shop/clicks", "clicks")):
        folder = tmp_path / "shop" / (group or "main")
        (folder / "checkpoint" / "offsets").mkdir(parents=True)
        (folder / "checkpoint" / "offsets" / "3").write_text("v1\n{}\n7")
        definition = {"group": group, "folder": str(folder), "sources": [group or "orders"]}
        checkpoint = str(folder / "checkpoint")
        leases[name] = backend.leases.acquire(name, Owner("elsewhere", 4711), ttl_ms=60_000)
        backend.jobs.record(
            Job(name, kind="pipeline", checkpoint=checkpoint, definition=definition), leases[name]
        )
        backend.state.put(name, "boundary", group, namespace="sources")
    assert main(["state", "show", "shop", "offsets", "--output", "json"]) == 0
    shown = [json.loads(line)["source"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["orders", "clicks"]
    assert main(["state", "show", "shop", "boundary", "--output", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["job"], row["value"]) for row in rows] == [("shop", ""), ("shop/clicks", "clicks")]
    end(backend, leases["shop"])
    # One group runs still: nothing of the other is deleted.
    assert main(["state", "reset", "shop", "--yes"]) == 1
    assert "'shop/clicks' is owned by" in capsys.readouterr().err
    assert (tmp_path / "shop" / "main").is_dir()
    end(backend, leases["shop/clicks"])
    assert main(["state", "reset", "shop", "--yes"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["'shop'", "'shop/clicks'"]
    assert not (tmp_path / "shop" / "main").exists()
    assert not (tmp_path / "shop" / "clicks").exists()
    assert (backend.state.items("shop"), backend.state.items("shop/clicks")) == ({}, {})


def test_a_dynamic_table_is_edited_while_its_pipeline_runs(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = backend.leases.acquire("shop", Owner("elsewhere", 4711), ttl_ms=60_000)
    nodes = {
        "VIP": {"kind": "transform", "type": "dynamic_table"},
        "orders": {"kind": "source", "type": "file"},
    }
    backend.jobs.record(Job("shop", kind="pipeline", definition={"group": "", "nodes": nodes}), lease)
    assert main(["state", "edit", "shop", "vip", "--add", "7"]) == 1
    assert "there is no dynamic table VIP in this state" in capsys.readouterr().err

    table = MemoryTable("VIP", value_type="int64")
    values = JobValues(backend, "shop", "sink", lease).within("VIP")
    table.open(TransformContext(None, "q", "VIP", None, state=values), None)  # type: ignore[arg-type]
    assert main(["state", "edit", "shop", "vip", "-a", "7", "-a", "12", "-a", "5"]) == 0
    assert main(["state", "edit", "shop", "VIP", "--remove", "12"]) == 0
    capsys.readouterr()
    assert main(["state", "edit", "shop", "VIP"]) == 0
    said = capsys.readouterr()
    assert (said.out.split(), said.err) == (
        [],
        "'VIP' has no values yet\n2 edits of 'VIP' wait for the next epoch\n",
    )
    table.update(1, None)
    assert sorted(table.members.values().to_pylist()) == [5, 7]
    capsys.readouterr()
    assert main(["state", "edit", "shop", "vip", "--output", "json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == [{"value": 5}, {"value": 7}]
    assert said.err == ""

    assert main(["state", "edit", "shop", "vip", "--add", "seven"]) == 1
    assert "holds values of the type bigint" in capsys.readouterr().err
    assert main(["state", "edit", "shop", "orders", "--add", "7"]) == 2
    assert "'shop' has no dynamic table 'orders'" in capsys.readouterr().err
    table.update(2, None)
    assert sorted(table.members.values().to_pylist()) == [5, 7]
    end(backend, lease)
