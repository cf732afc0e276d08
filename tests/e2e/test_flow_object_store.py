"""Flows in an object store: saved there, read from there, and refused as local ones are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import penstock as ps
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store
from twin.durable import add_view, answers, declare, opened, random_change, tick


@pytest.fixture
def bucket(s3: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A bucket, which the settings of sources and sinks reach."""
    conf = {"endpoint": s3.endpoint, "access.key": ACCESS_KEY, "secret.key": SECRET_KEY}
    words = [f"spark.hadoop.fs.s3a.{key}={value}" for key, value in conf.items()]
    monkeypatch.setenv("PENSTOCK_CONF", " ".join(words))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return s3.new_bucket()


@pytest.fixture
def store(s3: Store) -> Any:
    return fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=s3.endpoint, region="us-east-1"
    )


def some_flow() -> ps.IncrementalFlow:
    flow = opened()
    declare(flow)
    for name in ("totals", "named", "top_total"):
        add_view(flow, name)
    rng = random.Random(3)
    for _ in range(3):
        tick(flow, [*random_change(rng), (1, 2, 0, False)])
    return flow


def names(store: Any, path: str) -> list[str]:
    selector = fs.FileSelector(path, recursive=True)
    return sorted(entry.base_name for entry in store.get_file_info(selector) if entry.is_file)


@pytest.mark.parametrize("kind", ["incremental", "full"])
def test_a_flow_is_saved_and_goes_on(kind: str, bucket: str, store: Any) -> None:
    path = f"s3://{bucket}/flows/{kind}"
    flow = some_flow()

    def save(one: ps.IncrementalFlow) -> None:
        one.checkpoint(path, keep=2) if kind == "incremental" else one.checkpoint_full(path)

    save(flow)
    loaded = ps.IncrementalFlow.load(path, clock=lambda: 0)
    assert answers(loaded) == answers(flow)
    for number in range(3):
        for either in (flow, loaded):
            tick(either, [(number, 3, 1, False)])
        save(loaded)
        live = ps.IncrementalFlow(clock=lambda: 0)
        live.restore(path.replace("s3://", "s3a://"))
        assert answers(live) == answers(flow)
    if kind == "incremental":
        manifests = [name for name in names(store, f"{bucket}/flows") if name.endswith(".json")]
        assert manifests == ["checkpoint-000003.json", "checkpoint-000004.json"]
    else:
        assert {name[:11] for name in names(store, f"{bucket}/flows")} == {"full-000004", "full-checkp"}


def test_damage_in_a_store_is_named_by_its_address(bucket: str, store: Any) -> None:
    flow = some_flow()
    flow.checkpoint(f"s3://{bucket}/one")
    flow.checkpoint_full(f"s3://{bucket}/full")
    for folder in ("one", "full"):
        for name in names(store, f"{bucket}/{folder}"):
            key = f"{bucket}/{folder}/{name}"
            with store.open_input_stream(key) as stream:
                content = stream.read()
            for damaged in (content[: len(content) // 2], content[:-2] + b"##", b"{}"):
                with store.open_output_stream(key) as stream:
                    stream.write(damaged)
                with pytest.raises(ps.StateError) as refused:
                    ps.IncrementalFlow.load(f"s3://{bucket}/{folder}")
                assert refused.value.code == "STATE_CHECKPOINT_DAMAGED"
                assert refused.value.where == f"s3://{key}"
            with store.open_output_stream(key) as stream:
                stream.write(content)
        assert answers(ps.IncrementalFlow.load(f"s3://{bucket}/{folder}")) == answers(flow)
    store.delete_file(f"{bucket}/one/data-000001.bin")
    with pytest.raises(ps.StateError, match="cannot be read") as refused:
        ps.IncrementalFlow.load(f"s3://{bucket}/one")
    assert refused.value.code == "STATE_CHECKPOINT_DAMAGED"
    with pytest.raises(ps.StateError) as refused:
        ps.IncrementalFlow.load(f"s3://{bucket}/nothing")
    assert refused.value.code == "STATE_NO_CHECKPOINT"


def test_a_store_that_refuses_or_is_away_says_so(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = some_flow()
    before = answers(flow)
    with pytest.raises(ps.ConnectorError, match="bucket") as refused:
        flow.checkpoint("s3://no-such-bucket-here/one")
    assert refused.value.code == "STATE_STORE"
    flow.checkpoint(f"s3://{bucket}/one")
    monkeypatch.setenv(
        "PENSTOCK_CONF",
        "spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:1 "
        f"spark.hadoop.fs.s3a.access.key={ACCESS_KEY} spark.hadoop.fs.s3a.secret.key={SECRET_KEY}",
    )
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(ps.ConnectorError) as refused:
        ps.IncrementalFlow.load(f"s3://{bucket}/one")
    assert refused.value.code == "STATE_STORE"
    assert refused.value.where == f"s3://{bucket}/one"
    assert answers(flow) == before


def test_downloads_go_with_their_process(bucket: str, tmp_path: Path) -> None:
    left = tmp_path / "home" / "cache" / "objects" / "of a dead process"
    left.mkdir(parents=True)
    (left / "lock").touch()
    some_flow().checkpoint(f"s3://{bucket}/one")
    flow = ps.IncrementalFlow.load(f"s3://{bucket}/one")
    (own,) = left.parent.iterdir()
    assert own.name != left.name
    assert {file.suffix for file in own.iterdir()} == {"", ".bin"}
    assert len(answers(flow)) == 5
