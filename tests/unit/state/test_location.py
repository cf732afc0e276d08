"""Locations: what is a path, what is a store, and what is a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.config import Settings
from penstock.state.files import LocalFiles
from penstock.state.location import is_remote, open_location

SETTINGS = Settings(home=Path("home"))


@pytest.mark.parametrize("text", ["backup/orders", "/tmp/a:b", "./s3:/odd", "a//b", "c", "file:///tmp/x"])
def test_paths_of_this_machine(text: str) -> None:
    files, path = open_location(text, SETTINGS)
    assert isinstance(files, LocalFiles)
    assert path.is_absolute()
    assert not is_remote(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s4://bucket/x", "unknown scheme 's4'"),
        ("abfsss://bucket/x", "did you mean 'abfss'"),
        ("S3B://bucket/x", "unknown scheme"),
        ("s3:/bucket/x", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://", "names no bucket"),
        ("s3//bucket/x", "no ':'"),
        ("hdfs://host/x", "unknown scheme 'hdfs'"),
    ],
)
def test_what_looks_like_a_scheme_is_no_folder(text: str, message: str, tmp_path: Path) -> None:
    flow = ps.IncrementalFlow()
    for use in (flow.checkpoint, flow.checkpoint_full, flow.restore, ps.IncrementalFlow.load):
        with pytest.raises(ps.ConfigError) as refused:
            use(text)
        assert refused.value.code == "STATE_LOCATION"
        assert message in str(refused.value)
