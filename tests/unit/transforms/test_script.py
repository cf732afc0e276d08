"""Scripts in a real process of Deno, driven with Arrow batches as a Spark task does it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import psutil
import pyarrow as pa
import pytest

from penstock import config
from penstock.data.schema import to_arrow_schema
from penstock.errors import ConfigError, DataError
from penstock.pipeline.transforms.script import ScriptNode
from penstock.transforms import TRANSFORMS
from penstock.transforms.columns import output_columns
from penstock.transforms.failed_rows import TaskFailed, with_error_columns
from penstock.transforms.script.check import check_imports, check_loads, check_types
from penstock.transforms.script.program import Program
from penstock.transforms.script.source import forbidden_import, mentions_import
from penstock.transforms.script.task import ScriptTask, end_processes
from penstock.transforms.script.transform import ScriptTransform
from penstock.transforms.task_error import carried
from waiting import wait_for

MEMORY = 32_000_000


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    """End what the tests of this file started."""
    yield
    end_processes()


def _task(
    script: str,
    in_ddl: str,
    out_ddl: str | None = None,
    *,
    file: str = "node.js",
    seconds: float = 30,
    keeps_failed: bool = False,
    bigint: bool = False,
    zone: str = "UTC",
    keys: tuple[str, ...] = (),
) -> ScriptTask:
    schema = to_arrow_schema(in_ddl)
    fields = output_columns(out_ddl, schema)
    program = Program(file, script, schema, pa.schema(fields), bigint)
    out = with_error_columns(fields) if keeps_failed else pa.schema(fields)
    return ScriptTask(program, out, zone, seconds, MEMORY, "node", keeps_failed, keys)


def _run(
    script: str, rows: list[dict[str, Any]], in_ddl: str, out_ddl: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    task = _task(script, in_ddl, out_ddl, **options)
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(in_ddl))
    return [row for piece in task([batch]) for row in piece.to_pylist()]


def _error(
    script: str, rows: list[dict[str, Any]], in_ddl: str, out_ddl: str | None = None, **options: Any
) -> Any:
    """The error as the driver sees it."""
    with pytest.raises(TaskFailed) as failed:
        _run(script, rows, in_ddl, out_ddl, **options)
    error = carried(failed.value)
    assert error is not None
    return error


def _ids(*ids: int) -> list[dict[str, Any]]:
    return [{"id": value} for value in ids]


def test_null_drops_an_object_maps_an_array_expands() -> None:
    script = """
    function invoke(row) {
      if (row.id === 0) return null;
      if (row.id === 1) return undefined;
      if (row.id === 2) { row.id = 20; return row; }
      return [{id: row.id}, null, {id: row.id * 10}];
    }"""
    assert _run(script, _ids(0, 1, 2, 3), "id INT") == _ids(20, 3, 30)
    assert _run("function invoke() { return []; }", _ids(0, 1), "id INT") == []


def test_typescript_and_async_functions() -> None:
    script = """
    interface Row { id: number; name?: string }
    async function digest(text: string): Promise<string> {
      const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
      return Array.from(new Uint8Array(bytes)).map((byte) => byte.toString(16).padStart(2, "0")).join("").slice(0, 8);
    }
    const invoke = async (row: Row) => row.id === 2 ? null : ({ id: row.id, name: await digest("a") }) as Row;
    """
    rows = _run(script, _ids(1, 2, 3), "id INT", "id INT, name STRING", file="node.ts")
    assert rows == [{"id": 1, "name": "ca978112"}, {"id": 3, "name": "ca978112"}]
    mixed = "const invoke = (row) => row.id % 2 ? Promise.resolve(row) : row"
    assert _run(mixed, _ids(1, 2, 3, 4), "id INT") == _ids(1, 2, 3, 4)
    rejected = "async function invoke(row) {\n  if (row.id === 2) throw new Error('no');\n  return row;\n}"
    rows = _run(rejected, _ids(1, 2, 3), "id INT", keeps_failed=True)
    assert [row["id"] for row in rows] == [1, 3, None]
    assert rows[2]["_error"] == "Error: no (node.js:2:27)"


def test_every_type_comes_back_as_it_went() -> None:
    columns = (
        "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE, s STRING, bin BINARY, day DATE, ts TIMESTAMP, "
        "ntz TIMESTAMP_NTZ, dec DECIMAL(38,10), tags ARRAY<STRING>, m MAP<INT, ARRAY<DOUBLE>>, st STRUCT<a: BIGINT, b: STRUCT<c: DATE>>, n VOID"
    )
    rows: list[dict[str, Any]] = [
        {
            "b": True,
            "i8": -128,
            "i16": 32767,
            "i32": -(2**31),
            "i64": 2**53 - 1,
            "f": 0.1,
            "d": 1e308,
            "s": "Zoë 😀 \u2028 \x00 \"'\\",
            "bin": b"\x00\xff",
            "day": date(1, 1, 1),
            "ts": datetime(2026, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
            "ntz": datetime(1969, 12, 31, 23, 59, 59, 999000),
            "dec": Decimal("-1234567890123456789012345678.0000000001"),
            "tags": ["a", None, ""],
            "m": [(1, [0.5, None, math.inf]), (-2, None)],
            "st": {"a": 7, "b": {"c": date(9999, 12, 31)}},
            "n": None,
        },
        dict.fromkeys(field.name for field in to_arrow_schema(columns)),
        {
            "d": -math.inf,
            "f": -0.0,
            "dec": Decimal("1E-10"),
            "tags": [],
            "m": [],
            "st": {"a": None, "b": None},
            "ts": datetime(2026, 1, 1, tzinfo=UTC),
        },
    ]
    schema = to_arrow_schema(columns)
    expected = pa.RecordBatch.from_pylist(rows, schema=schema)
    for script in ("function invoke(row) { return row; }", "function invoke(row) { return {...row}; }"):
        task = _task(script, columns)
        batch = pa.RecordBatch.from_pylist([{}, *rows, {}], schema=schema).slice(1, 3)
        [result] = task([batch])
        assert result.to_pylist() == expected.to_pylist()
        assert math.copysign(1, result.column("f")[2].as_py()) == -1
    nan = pa.RecordBatch.from_pylist([{"d": math.nan}], schema=to_arrow_schema("d DOUBLE"))
    [result] = _task("function invoke(row) { return {d: Number.isNaN(row.d) ? row.d : 1}; }", "d DOUBLE")(
        [nan]
    )
    assert math.isnan(result.column(0)[0].as_py())


def test_values_as_the_script_sees_them() -> None:
    in_ddl = "n BIGINT, dec DECIMAL(10,2), ts TIMESTAMP, day DATE, bin BINARY, m MAP<BOOLEAN, INT>, `__proto__` INT, `a b` INT"
    row = {
        "n": 5,
        "dec": Decimal("1.50"),
        "ts": datetime(2026, 1, 1, 10, 0, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "bin": b"hi",
        "m": [(True, 1)],
        "__proto__": 3,
        "a b": 4,
    }
    script = (
        "function invoke(row) { return {seen: JSON.stringify(row), sum: row['__proto__'] + row['a b']}; }"
    )
    [seen] = _run(script, [row], in_ddl, "seen STRING, sum INT")
    assert seen == {
        "seen": '{"n":5,"dec":"1.50","ts":"2026-01-01T10:00:00.000Z","day":"2026-01-02","bin":"aGk=","m":{"true":1},'
        '"__proto__":3,"a b":4}',
        "sum": 7,
    }


def test_integers_beyond_a_number() -> None:
    rows: list[dict[str, Any]] = [
        {"n": 2**53 - 1, "a": [1]},
        {"n": 2**53, "a": [1]},
        {"n": 1, "a": [2**60, None]},
        {"n": None, "a": None},
    ]
    in_ddl = "n BIGINT, a ARRAY<BIGINT>"
    same = "function invoke(row) { return row; }"
    error = _error(same, rows, in_ddl)
    assert isinstance(error, DataError)
    assert error.code == "SCRIPT_ROW"
    assert "column 'n' is an integer that a Number does not hold exactly: set `bigint: true`" in error.message
    assert '{"n":9007199254740992,"a":[1]}' in error.message
    dropped = _run(same, rows, in_ddl, keeps_failed=True)
    assert [row["n"] for row in dropped] == [2**53 - 1, None, None, None]
    assert [row["_error"] is None for row in dropped] == [True, True, False, False]
    assert _run(same, rows, in_ddl, bigint=True) == rows
    typed = "function invoke(row) { return {n: typeof row.n === 'bigint' ? row.n * 2n : null}; }"
    assert _run(typed, rows[:1], "n BIGINT, a ARRAY<BIGINT>", "n BIGINT", bigint=True) == [{"n": 2**54 - 2}]
    assert _run("function invoke() { return {n: 2n ** 63n - 1n}; }", _ids(1), "id INT", "n BIGINT") == [
        {"n": 2**63 - 1}
    ]
    inexact = _error("function invoke() { return {n: 2 ** 53}; }", _ids(1), "id INT", "n BIGINT")
    assert "got 9007199254740992, which a Number does not hold exactly: return a BigInt" in inexact.message


TAKEN: list[tuple[str, str, Any]] = [
    ("DECIMAL(5,2)", "'1.005'", Decimal("1.01")),
    ("DECIMAL(5,2)", "1.1 + 2.2", Decimal("3.30")),
    ("DECIMAL(20,0)", "12345678901234567890n", Decimal(12345678901234567890)),
    ("DECIMAL(38,18)", "1e-7", Decimal("0.0000001")),
    ("DOUBLE", "7n", 7.0),
    ("DOUBLE", "-0", -0.0),
    ("FLOAT", "1e300", math.inf),
    ("INT", "-0", 0),
    ("INT", "3n", 3),
    ("STRING", r"'\ud800x'", "\ufffdx"),
    ("BINARY", "new Uint8Array([1, 2])", b"\x01\x02"),
    ("DATE", "new Date(0)", date(1970, 1, 1)),
    ("TIMESTAMP", "new Date(1500)", datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)),
    ("TIMESTAMP", "'2026-01-01T10:00:00+02:00'", datetime(2026, 1, 1, 8, tzinfo=UTC)),
    ("TIMESTAMP", "'2026-07-01 10:00:00'", datetime(2026, 7, 1, 8, tzinfo=UTC)),
    ("TIMESTAMP", "'2026-01-01'", datetime(2025, 12, 31, 23, tzinfo=UTC)),
    ("TIMESTAMP", "'2026-01-01T00:00:00.123456789Z'", datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ("TIMESTAMP_NTZ", "new Date(1500)", datetime(1970, 1, 1, 0, 0, 1, 500000)),
    ("ARRAY<DOUBLE>", "new Float64Array([1, NaN])[0] && [1, undefined]", [1.0, None]),
    ("ARRAY<TINYINT>", "new Uint8Array([1, 2])", [1, 2]),
    ("MAP<STRING, INT>", "{a: 1, b: undefined}", [("a", 1), ("b", None)]),
    ("MAP<BIGINT, STRING>", "new Map([[2n ** 60n, 'x']])", [(2**60, "x")]),
    ("MAP<DOUBLE, STRING>", "{'1.5': 'x'}", [(1.5, "x")]),
    ("STRUCT<a: INT, b: STRING>", "{b: 'x'}", {"a": None, "b": "x"}),
]


def test_what_columns_take() -> None:
    fields = ", ".join(f"x{at}: {returned}" for at, (_, returned, _) in enumerate(TAKEN))
    schema = ", ".join(f"x{at} {kind}" for at, (kind, _, _) in enumerate(TAKEN))
    script = f"function invoke() {{ return {{{fields}}}; }}"
    [row] = _run(script, _ids(1), "id INT", schema, zone="Europe/Berlin")
    assert list(row.values()) == [expected for _, _, expected in TAKEN]


REFUSED = [
    ("STRING", "1", "column '{x}' is STRING and got 1: String(...) makes text of it"),
    ("STRING", "{}", "column '{x}' is STRING and got an object: JSON.stringify makes text of it"),
    ("INT", "'1'", "column '{x}' is INT and got \"1\""),
    ("INT", "1.5", "column '{x}' is INT and got 1.5"),
    ("TINYINT", "128", "column '{x}' is TINYINT and got 128"),
    ("BIGINT", "2n ** 63n", "column '{x}' is BIGINT and got 9223372036854775808n"),
    ("DOUBLE", "'1'", "column '{x}' is DOUBLE and got \"1\""),
    ("BOOLEAN", "1", "column '{x}' is BOOLEAN and got 1"),
    ("DECIMAL(5,2)", "1000", "column '{x}' is DECIMAL(5,2) and got '1000'"),
    ("DECIMAL(5,2)", "'x'", "column '{x}' is DECIMAL(5,2) and got 'x'"),
    ("DECIMAL(5,2)", "NaN", "column '{x}' is DECIMAL(5,2) and got NaN"),
    ("DATE", "'2026-02-30'", "column '{x}' is DATE and got '2026-02-30'"),
    ("TIMESTAMP", "1767261600", "column '{x}' is TIMESTAMP and got 1767261600: new Date(milliseconds)"),
    ("TIMESTAMP", "'soon'", "column '{x}' is TIMESTAMP and got 'soon'"),
    ("TIMESTAMP", "new Date(NaN)", "RangeError: Invalid time value"),
    ("BINARY", "'?'", "column '{x}' is BINARY and got '?'"),
    ("ARRAY<INT>", "[1, 'a']", "column '{x}[]' is INT and got \"a\""),
    ("ARRAY<DATE>", "['2026-01-01', 'a']", "column '{x}' is DATE and got 'a'"),
    ("MAP<INT, INT>", "{a: 1}", "column '{x} (key)' is INT and got \"a\""),
    ("STRUCT<a: INT>", "{a: 1, c: 2}", "column '{x}' has no field 'c'"),
    ("STRUCT<a: INT>", "[1]", "column '{x}' is STRUCT and got an array"),
]


def test_what_columns_refuse() -> None:
    cases = "".join(
        f"case {at}: return {{x{at}: {returned}}};\n" for at, (_, returned, _) in enumerate(REFUSED)
    )
    schema = ", ".join(f"x{at} {kind}" for at, (kind, _, _) in enumerate(REFUSED))
    script = f"function invoke(row) {{ switch (row.id) {{ {cases} default: return {{}}; }} }}"
    rows = _run(script, _ids(*range(len(REFUSED) + 1)), "id INT", schema, keeps_failed=True)
    assert [row["_error"] is None for row in rows] == [True, *[False] * len(REFUSED)]
    for at, (row, (_, _, message)) in enumerate(zip(rows[1:], REFUSED, strict=True)):
        assert message.replace("{x}", f"x{at}") in row["_error"]
        assert row["_input"] == f'{{"id":{at}}}'


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("1", "invoke returned 1: return an object, an array of objects or null"),
        ("[[]]", "invoke returned an array with an array"),
        ("{idd: 1}", "no column 'idd' in the schema"),
    ],
)
def test_what_invoke_must_not_return(returned: str, message: str) -> None:
    assert message in _error(f"function invoke() {{ return {returned}; }}", _ids(1), "id INT").message


def test_an_error_names_the_line_the_row_and_the_message() -> None:
    script = "function invoke(row: any) {\n  if (row.id === 2) {\n    row.name.trim();\n  }\n  return row;\n}"
    rows: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    error = _error(script, rows, "id INT, name STRING", file="by.customer.ts")
    assert error.where == "by.customer.ts:3:14"
    assert "TypeError: Cannot read properties of null (reading 'trim')" in error.message
    assert '{"id":2,"name":null}' in error.message
    assert "node" in error.message
    thrown = _run("function invoke(row) { throw row.id; }", _ids(1), "id INT", keeps_failed=True)
    assert thrown[0]["_error"] == "thrown: 1"


def test_a_row_goes_through_as_a_whole_or_not_at_all() -> None:
    script = "const invoke = (row) => [{x: '1'}, {x: row.id === 2 ? 'a' : '2'}, {x: '3'}];"
    rows = _run(script, _ids(1, 2, 3), "id INT", "x DECIMAL(5,0)", keeps_failed=True)
    assert [row["x"] for row in rows] == [1, 2, 3, 1, 2, 3, None]
    typed = "const invoke = (row) => [{x: 1}, {x: row.id === 2 ? 'a' : 2}];"
    rows = _run(typed, _ids(1, 2, 3), "id INT", "x INT", keeps_failed=True)
    assert [row["x"] for row in rows] == [1, 2, 1, 2, None]


def test_the_operation_of_a_row_comes_through() -> None:
    rows = [{"id": 1, "_op": "d"}, {"id": 2, "_op": "u"}, {"id": 3, "_op": "i"}]
    script = "function invoke(row) { if (row.id === 1) return null; return row.id === 2 ? {id: 2} : [{id: 3}, {id: 4, _op: 'd'}]; }"
    assert _run(script, rows, "id INT, _op STRING") == [
        {"id": 2, "_op": "u"},
        {"id": 3, "_op": "i"},
        {"id": 4, "_op": "d"},
    ]
    # With a key, what was there of a row of which nothing is made goes; the order of changes stays.
    changes = [(2, "u"), (1, "u"), (1, "i"), (5, "u"), (3, "i"), (1, "d")]
    rows_of_keys = [{"id": key, "amount": 7, "_op": operation} for key, operation in changes]
    script = "function invoke(row) { if (row.id === 5) throw new Error('no'); return row.id === 1 || row._op === 'd' ? null : row; }"
    made = _run(script, rows_of_keys, "id INT, amount INT, _op STRING", keys=("id",), keeps_failed=True)
    assert [(row["id"], row["amount"], row["_op"]) for row in made if row["_error"] is None] == [
        (2, 7, "u"),
        (1, None, "d"),
        (5, None, "d"),
        (3, 7, "i"),
        (1, None, "d"),
    ]
    assert len(made) == 6
    wrong = _error("function invoke() { return {_op: 'x'}; }", rows, "id INT, _op STRING")
    assert "column '_op' is 'i', 'u' or 'd' and got \"x\"" in wrong.message


def test_one_row_becomes_a_hundred_thousand() -> None:
    script = "const invoke = (row) => Array.from({length: 100_000}, (_, id) => ({id}));"
    task = _task(script, "id INT")
    pieces = list(task([pa.RecordBatch.from_pylist(_ids(1), schema=to_arrow_schema("id INT"))]))
    assert sum(piece.num_rows for piece in pieces) == 100_000
    assert pieces[0].column(0)[99_999].as_py() == 99_999


def test_a_batch_that_becomes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transforms.script.task.MOST_ANSWER_BYTES", 100_000)
    script = "const invoke = (row) => Array.from({length: 20_000}, (_, id) => ({id}));"
    error = _error(script, _ids(1, 2), "id INT")
    assert (error.code, error.where) == ("SCRIPT_MEMORY", "node.js")
    assert "more than 0.0001 GB of 2 rows" in error.message
    assert len(_run(script, _ids(1), "id INT")) == 20_000


def test_text_that_is_longer_than_one_can_be_is_the_fault_of_its_row() -> None:
    script = (
        "const invoke = (row) => ({s: row.id === 2 ? 'x'.repeat(2 ** 28) + 'x'.repeat(2 ** 28) + 'y' : 'x'});"
    )
    rows = _run(script, _ids(1, 2, 3), "id INT", "s STRING", keeps_failed=True)
    assert [row["s"] for row in rows] == ["x", "x", None]
    assert "RangeError" in rows[2]["_error"] or "memory" in rows[2]["_error"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("while (true) {}", "SCRIPT_TIMEOUT"),
        ("const all = []; while (true) all.push({at: all.length});", "SCRIPT_MEMORY"),
        ("const all = []; while (true) all.push(new Uint8Array(10_000_000).fill(1));", "SCRIPT_MEMORY"),
        ("reportError(new Error('away'));", "SCRIPT_ENDED"),
    ],
)
def test_a_row_that_ends_the_process_is_named_and_the_others_go_on(body: str, code: str) -> None:
    script = f"function invoke(row) {{ if (row.id === 2) {{ {body} }} return row; }}"
    seconds = 0.5 if code == "SCRIPT_TIMEOUT" else 20
    error = _error(script, _ids(1, 2, 3), "id INT", seconds=seconds)
    assert error.code == code
    assert '{"id":2}' in error.message
    rows = _run(script, _ids(1, 2, 3), "id INT", seconds=seconds, keeps_failed=True)
    assert [row["id"] for row in rows] == [1, 3, None]
    assert rows[2]["_input"] == '{"id":2}'


def test_a_promise_that_never_comes_ends_the_process() -> None:
    script = "const invoke = (row) => row.id === 2 ? new Promise(() => {}) : row;"
    rows = _run(script, _ids(1, 2, 3), "id INT", keeps_failed=True)
    assert [row["id"] for row in rows] == [1, 3, None]


def test_a_process_that_is_killed_from_outside_is_started_again() -> None:
    task = _task("let calls = 0; const invoke = (row) => ({id: ++calls});", "id INT")
    batch = pa.RecordBatch.from_pylist(_ids(1, 2), schema=to_arrow_schema("id INT"))

    def ids() -> list[int]:
        return [value for piece in task([batch]) for value in piece.column(0).to_pylist()]

    assert ids() == [1, 2]
    assert ids() == [3, 4], "a script keeps its variables as long as its process lives"
    os.kill(task.running().pid, signal.SIGKILL)
    assert ids() == [1, 2]


FORBIDDEN = [
    ("Deno.readTextFileSync('/etc/passwd')", "ReferenceError: Deno is not defined"),
    ("Deno.env.get('HOME')", "ReferenceError: Deno is not defined"),
    ("process.env.HOME", "ReferenceError: process is not defined"),
    ("new Worker('data:text/javascript,0')", "ReferenceError: Worker is not defined"),
    ("await fetch('http://127.0.0.1:8123/')", "Requires net access"),
    ("new WebSocket('ws://127.0.0.1:8123/')", "Requires net access"),
    ("await caches.open('a')", "ReferenceError: caches is not defined"),
    ("localStorage.a = 1", "ReferenceError: localStorage is not defined"),
    ("eval('1')", "Code generation from strings disallowed"),
    ("new Function('return 1')()", "Code generation from strings disallowed"),
]


def test_a_script_has_no_permissions() -> None:
    cases = "".join(f"case {at}: {expression}; break;\n" for at, (expression, _) in enumerate(FORBIDDEN))
    script = f"async function invoke(row) {{ switch (row.id) {{ {cases} }} return row; }}"
    rows = _run(script, _ids(*range(len(FORBIDDEN))), "id INT", keeps_failed=True)
    for row, (_, message) in zip(rows, FORBIDDEN, strict=True):
        assert message in row["_error"]


def test_no_process_outlives_its_task() -> None:
    program = """
    import pyarrow as pa
    from penstock.transforms.script.process import Process
    from penstock.transforms.script.program import Program

    ids = pa.schema([("id", pa.int32())])
    process = Process(Program("a.js", "setInterval(() => {}, 1); function invoke(row) { while (row.id) {} return row; }", ids, ids), memory=64_000_000)
    print(process.pid, flush=True)
    body = b'{"columns": [[%d]], "count": 1, "revive": [], "stop": true, "announce": false}' % ENDLESS
    list(process.call(body, seconds=60))
    """
    for endless in (0, 1):
        code = textwrap.dedent(program).replace("ENDLESS", str(endless))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = psutil.Process(int(parent.stdout.readline()))
            if endless:
                wait_for(partial(_has_worked, child), "endless loop")
                parent.kill()
        wait_for(partial(_is_gone, child), "end of the process", 20)


def _has_worked(process: psutil.Process) -> bool:
    return bool(process.cpu_times().user > 0.3)


def _is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_what_a_script_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    script = "console.log('loaded');\nfunction invoke(row) { console.log('row', row.id); console.table([1]); return row; }"
    assert _run(script, _ids(1, 2), "id INT") == _ids(1, 2)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("node.js: loaded\nnode.js: row 1\n")


def test_changed_globals_do_not_change_rows() -> None:
    script = """
    Object.prototype.extra = 1;
    Array.prototype.last = function () { return this[this.length - 1]; };
    JSON.parse = JSON.stringify = null;
    Number.isSafeInteger = () => false;
    globalThis.TextEncoder = globalThis.Date = null;
    console.log = null;
    const invoke = (row) => row.id === 2 ? [row, row].last() : row;
    """
    assert _run(script, _ids(1, 2), "id INT, at TIMESTAMP") == [{"id": 1, "at": None}, {"id": 2, "at": None}]


@pytest.mark.parametrize(
    ("script", "message", "where"),
    [
        ("function invoke(row) {\n  return row +;\n}", "Expression expected", "node.js:2:15"),
        ("const a = 1;\nthrow new TypeError('no');\nfunction invoke() {}", "TypeError: no", "node.js:2:7"),
        ("// invoke", "the script has no function invoke", "node.js"),
        ("const invoke = 1;", "the script has no function invoke", "node.js"),
        (
            "function invoke() {}\nfunction invoke() {}\nlet invoke = 1;",
            "already been declared",
            "node.js:2:1",
        ),
    ],
)
def test_a_script_that_cannot_be_loaded(script: str, message: str, where: str) -> None:
    error = _error(script, _ids(1), "id INT")
    assert isinstance(error, ConfigError)
    assert error.code == "SCRIPT_INVALID"
    assert message in error.message
    assert "/tmp" not in str(error)
    assert error.where is not None
    assert error.where.startswith(where)


def test_types_that_no_script_can_have() -> None:
    with pytest.raises(ConfigError, match="the column 'i' of type INTERVAL") as refused:
        _task("function invoke(row) { return row; }", "i INTERVAL DAY TO SECOND").program.main()
    assert refused.value.code == "TRANSFORM_TYPE"


def test_what_deno_says_before_rows_come() -> None:
    nothing = pa.schema([])

    def program(script: str, file: str = "node.ts") -> Program:
        return Program(file, script, nothing, nothing)

    fine = program(
        "// import './a.js'\nfunction invoke(row) { try { row.a = /import/; } catch (e) { e.x; } return row; }"
    )
    check_imports(fine)
    check_types(fine)
    check_loads(fine, memory=MEMORY)
    hidden = program(
        "const quote = /\"/; import text from '/etc/passwd' with {type: 'text'}; // \"\nfunction invoke() {}"
    )
    assert forbidden_import(hidden.script) is None
    with pytest.raises(ConfigError, match="imports '/etc/passwd'") as imported:
        check_imports(hidden)
    assert imported.value.where == "node.ts:1:37"
    directive = program("/// <reference path='/etc/passwd' />\nfunction invoke() {}")
    assert mentions_import(directive.script)
    with pytest.raises(ConfigError, match="imports '/etc/passwd'"):
        check_imports(directive)
    with pytest.raises(ConfigError, match="the script cannot be loaded") as broken:
        check_imports(program("function invoke( {\n import x"))
    assert broken.value.where == "node.ts:2:9\n      import x"
    with pytest.raises(
        ConfigError, match=r"TS2322.*Type 'string' is not assignable to type 'number'"
    ) as typed:
        check_types(program("function invoke(row) {\n  const a: number = 'x';\n  return {a};\n}"))
    assert (typed.value.code, typed.value.where) == ("SCRIPT_TYPES", "node.ts:2:9")
    with pytest.raises(ConfigError, match="ReferenceError: a is not defined"):
        check_loads(program("a();\nfunction invoke() {}", "node.js"), memory=MEMORY)


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("import x from 'y';", (1, 1)),
        ("const a = 1;\n  import('y');", (2, 3)),
        ("import/**/'y'", (1, 1)),
        ("import type {X} from 'y'", (1, 1)),
        ("export * from 'y'", (1, 1)),
        ("export {a, b as c} from 'y'", (1, 1)),
        ("`${import('y')}`", (1, 4)),
        ("export {a}; const from = 1;", None),
        ("import.meta.url", None),
        ("row.import; ({import: 1}); important(); export function invoke() {}", None),
        ("/* import 'y' */ 'import(1)'", None),
    ],
)
def test_imports_are_seen_in_the_text(script: str, place: tuple[int, int] | None) -> None:
    assert forbidden_import(script) == place


def test_options_that_cannot_work() -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(ConfigError) as error:
            ScriptTransform({"script": "function invoke(row) { return row; }", **options})
        assert error.value.code.startswith("TRANSFORM_OPTION")
        return str(error.value)

    assert "script has an import in line 2, column 1" in refused(script="// invoke\nimport 'x';")
    assert "script has no function invoke" in refused(script="function f() {}")
    assert "memory must be 16 MB at least" in refused(memory="1 MB")
    assert "unknown language 'python'" in refused(language="python")
    assert "schema has no type for the column 'a'" in refused(schema={"a": {"b": "int"}})
    options = ScriptTransform({"script": "let invoke", "schema": {"a b": "int64"}, "memory": "64 MB"}).options
    assert (options.columns, options.memory, options.timeout) == ("`a b` int64", 64_000_000, 30_000)


def test_the_node_has_the_options_of_the_transform() -> None:
    node = ScriptNode.model_validate(
        {
            "type": "script",
            "from": "rows",
            "language": "ts",
            "script": "let invoke",
            "schema": {"a": "int"},
            "timeout": "5 s",
        }
    )
    transform = node.transform(config.load({}))
    assert transform.options.model_dump() == {
        "language": "ts",
        "script": "let invoke",
        "columns": "`a` int",
        "bigint": False,
        "timeout": 5000,
        "memory": 256_000_000,
    }
    assert TRANSFORMS.load("script") is type(transform)
