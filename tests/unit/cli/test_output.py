from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli import table
from penstock.cli.output import Format, Written, distinct, write_batches, write_rows
from penstock.cli.value import csv_text, duration_text, json_text, table_text
from penstock.data.schema import to_arrow_type
from penstock.data.variant import parse_json


def _text(rows: pa.Table, output: Format, limit: int | None = None) -> tuple[str, Written]:
    stream = io.StringIO()
    written = write_batches(rows.schema, rows.to_batches(), output=output, limit=limit, stream=stream)
    return stream.getvalue(), written


ROWS = pa.table(
    {
        "id": pa.array([9007199254740993, None], pa.int64()),
        "price": pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(38, 2)),
        "note": ['say "hi", all', ""],
        "at": pa.array([dt.datetime(2024, 2, 3, 4, 5, 6, 700), None], pa.timestamp("us", "UTC")),
        "ratio": [float("nan"), 0.1],
        "raw": [b"\x00\xff", None],
        "tags": [["a", None], None],
        "labels": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
)


def test_json_is_one_exact_object_per_line() -> None:
    text, written = _text(ROWS, Format.JSON)
    first, second = text.splitlines()
    assert '"price": 12345678901234567890.10' in first
    assert json.loads(first, parse_float=Decimal) == {
        "id": 9007199254740993,
        "price": Decimal("12345678901234567890.10"),
        "note": 'say "hi", all',
        "at": "2024-02-03T04:05:06.000700+00:00",
        "ratio": "NaN",
        "raw": "AP8=",
        "tags": ["a", None],
        "labels": {"k": 1},
    }
    assert json.loads(second)["note"] == ""
    assert json.loads(second)["id"] is None
    assert written == Written(2)


def test_csv_reads_back_and_tells_null_from_empty() -> None:
    text, _ = _text(ROWS, Format.CSV)
    assert text.splitlines()[2].startswith(',,"",,0.1,')
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["note"] == 'say "hi", all'
    assert rows[0]["tags"] == '["a", null]'


def test_arrow_is_an_ipc_stream_cut_at_the_limit() -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    rows = ROWS.drop_columns(["ratio"])
    written = write_batches(rows.schema, rows.to_batches(), output=Format.ARROW, limit=1, stream=stream)
    stream.buffer.seek(0)
    assert pa.ipc.open_stream(stream.buffer).read_all().equals(rows.slice(0, 1))
    assert written == Written(1, more=True)


def test_a_table_aligns_numbers_right_and_shows_null() -> None:
    text, _ = _text(pa.table({"n": [1, None], "name": ["数据", "NULL"]}), Format.TABLE)
    assert text.splitlines() == [
        "    n │ name",
        "──────┼────────",
        "    1 │ 数据",
        ' NULL │ "NULL"',
    ]


@pytest.mark.parametrize("output", [Format.TABLE, Format.JSON, Format.CSV])
def test_the_limit_says_when_there_was_more(output: Format) -> None:
    rows = pa.table({"n": list(range(5))})
    assert _text(rows, output, 3)[1] == Written(3, more=True)
    assert _text(rows, output, 5)[1] == Written(5, more=False)
    assert _text(rows.slice(0, 0), output, 5)[1] == Written(0, more=False)


def test_years_that_python_lacks_are_printed() -> None:
    far = pa.table({"t": pa.array([253402300800_000_000], pa.timestamp("us"))})
    assert json.loads(_text(far, Format.JSON)[0])["t"].startswith("10000-01-01")


def test_write_rows_needs_no_arrow_and_fills_missing_keys() -> None:
    stream = io.StringIO()
    write_rows([{"a": 1}, {"a": 2, "b": "x"}], ["a", "b"], output=Format.CSV, stream=stream)
    assert stream.getvalue() == "a,b\n1,\n2,x\n"


def test_columns_of_one_name_stay_apart() -> None:
    assert distinct(["a", "a", "a_2", "a"]) == ("a", "a_2", "a_2_2", "a_3")


@pytest.mark.parametrize(
    ("value", "shown", "written", "field"),
    [
        (True, "true", "true", "true"),
        ("a\tb\x1b[31m", "a\\tb\\x1b[31m", '"a\\tb\\u001b[31m"', "a\tb\x1b[31m"),
        (1e22, "1e+22", "1e+22", "1e+22"),
        (float("-inf"), "-Infinity", '"-Infinity"', "-Infinity"),
        (Decimal("1E+3"), "1000", "1000", "1000"),
        (dt.date(2024, 1, 2), "2024-01-02", '"2024-01-02"', "2024-01-02"),
        ({"a": [1, {"b": None}]}, '{"a": [1, {"b": null}]}', '{"a": [1, {"b": null}]}', None),
        (b"ab", "0x6162", '"YWI="', "YWI="),
    ],
)
def test_values(value: Any, shown: str, written: str, field: str | None) -> None:
    assert table_text(value) == shown
    assert json_text(value) == written
    if field is not None:
        assert csv_text(value) == field


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.timedelta(0), "PT0S"),
        (dt.timedelta(days=-1, hours=-1), "-P1DT1H"),
        (dt.timedelta(seconds=61, microseconds=5), "PT1M1.000005S"),
    ],
)
def test_durations(value: dt.timedelta, text: str) -> None:
    assert duration_text(value) == text


def test_a_terminal_cuts_long_values_and_turns_to_records_when_columns_do_not_fit() -> None:
    layout = table.plan(["id", "text"], [(1, "x" * 100)], terminal=30)
    lines = [*layout.head(), *layout.lines((1, "x" * 100), 1)]
    assert max(map(table.display_width, lines)) <= 30
    assert lines[-1].endswith("x…")
    names = [f"column_{n}" for n in range(12)]
    layout = table.plan(names, [tuple(range(12))], terminal=60)
    assert layout.vertical
    lines = list(layout.lines(tuple(range(12)), 1))
    assert lines[0].startswith("─[ row 1 ]")
    assert lines[-1] == "column_11 │ 11"


def test_an_empty_result_has_a_head_only() -> None:
    text, written = _text(pa.table({"a": pa.array([], pa.int64())}), Format.TABLE)
    assert text == " a\n───\n"
    assert written.rows == 0


def test_intervals_times_and_variants_are_printed() -> None:
    variant = to_arrow_type("array<variant>")
    part = dict(zip(("value", "metadata"), parse_json('{"a": [1, "x"]}'), strict=True))
    rows = pa.table(
        {
            "months": pa.array([(14, 0, 0), (-1, 2, -1_500_000_000)], pa.month_day_nano_interval()),
            "time": pa.array([dt.time(1, 2, 3), None], pa.time64("ns")),
            "variants": pa.array([[part, None], None], variant),
        }
    )
    first, second = _text(rows, Format.JSON)[0].splitlines()
    assert json.loads(first) == {"months": "P1Y2M", "time": "01:02:03", "variants": [{"a": [1, "x"]}, None]}
    assert json.loads(second)["months"] == "P-1M2DT-1.5S"
    assert _text(rows, Format.CSV)[0].splitlines()[1].startswith('P1Y2M,01:02:03,"[{')
    assert "P1Y2M" in _text(rows, Format.TABLE)[0]
