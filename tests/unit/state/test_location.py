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


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gs://bucket/orders?retry_limit_seconds=1", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss://container@account.dfs.core.windows.net/orders", "AZURE_CLIENT_SECRET"),
        ("abfss://container/orders", "AZURE_CLIENT_SECRET"),
    ],
)
def test_a_store_without_credentials_is_a_clear_error(
    text: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where both clients look for the log-in of a user
    for variable in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(variable, raising=False)
    flow = ps.IncrementalFlow()
    uses = (flow.checkpoint, flow.restore, lambda path: ps.IncrementalFlow(path=path))
    for use in uses[:1] if text.startswith("gs") else uses:
        with pytest.raises(ps.ConnectorError) as refused:
            use(text)
        assert refused.value.code == "STATE_STORE"
        assert hint in str(refused.value.hint)
        assert "error_info" not in str(refused.value)
        assert "Azure::" not in str(refused.value)
