"""What a writer refuses before it looks at the stream: options of the query and of its sink, all mistakes at once."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import config
from penstock.errors import ConfigError
from penstock.streaming.query_options import QueryOptions, read_query_options
from penstock.streaming.trigger import Trigger
from penstock.streaming.writer import StreamWriter


def writer(sink: str, **options: Any) -> StreamWriter:
    queries: Any = SimpleNamespace(settings=config.load({}))
    frame: Any = SimpleNamespace(columns=["id"])
    return StreamWriter(queries, frame).format(sink).trigger(Trigger.once()).options(**options)


def refused(sink: str, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        writer(sink, **options).plan()
    return caught.value


@pytest.mark.parametrize("value", [True, "true", "TRUE", "yes", "on", 1, "1"])
def test_windows_are_closed_by_every_word_for_true(value: Any) -> None:
    assert read_query_options({"close_windows": value}).close_windows
    error = refused("memory", close_windows=value)
    assert error.message.startswith("close_windows belongs to Trigger.available_now()")


@pytest.mark.parametrize("value", [False, "false", "no", "off", 0])
def test_windows_stay_open_by_every_word_for_false(value: Any) -> None:
    assert not read_query_options({"close_windows": value}).close_windows


@pytest.mark.parametrize("value", ["ture", 2, None, ""])
def test_what_is_no_truth_value_is_refused(value: Any) -> None:
    error = refused("memory", close_windows=value)
    assert error.code == "STREAM_OPTION_VALUE"
    assert error.message.startswith("the query: close_windows must be true or false, got")


def test_all_mistakes_are_told_at_once() -> None:
    options = {"checkpoint.location": [7], "savepoint": "a\0b", "close_windows": "ture", "rows": 1}
    error = refused("blackhole", **options)
    assert error.code == "STREAM_OPTIONS"
    assert error.message == (
        "the query: checkpoint.location must be text, got list; savepoint has the character U+0000, which no file has in its name; "
        "close_windows must be true or false, got 'ture'; the blackhole sink has no option 'rows'"
    )


def test_a_mistyped_option_of_the_query_is_found() -> None:
    error = refused("blackhole", close_window=True)
    assert error.code == "STREAM_OPTION_UNKNOWN"
    assert str(error.hint).startswith("'close_windows' is an option of the query")
    assert "of the query" not in str(refused("blackhole", rows=1).hint)


@pytest.mark.parametrize("name", ["checkpoint.location", "checkpoint_location", "checkpointLocation"])
def test_a_checkpoint_has_an_absolute_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream_writer = writer("blackhole").option("checkpoint.location", "old").option(name, Path("ckpt"))
    options = read_query_options(stream_writer._query_options)
    assert options == QueryOptions.model_validate({"checkpoint.location": os.fspath(tmp_path / "ckpt")})
    assert options.checkpoint == os.fspath(tmp_path / "ckpt")
    assert stream_writer._options == {}
    assert read_query_options({"savepoint": "s3://bucket/saved"}).savepoint == "s3://bucket/saved"
