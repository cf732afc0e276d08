"""From files to pipelines: what is read, and every mistake with its place."""

from __future__ import annotations

import cProfile
import json
import pickle
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.pipeline.load import Checked, check, check_text, load
from penstock.pipeline.preview import last_node, shown_node
from penstock.pipeline.problem import PipelineError, Problem
from penstock.pipeline.sinks.webhook import WebhookNode
from penstock.pipeline.sources.file import FileNode

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
NODES = sorted((ROOT / "examples" / "nodes").glob("*.yaml"))
SEED = sorted((Path(__file__).parent / "seed").glob("*.yaml"))
ENVIRON = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann:geheim@db/x",
    "PENSTOCK_CLICKHOUSE_URL": "http://click:8123",
}

GOOD = """\
name: shop
state: sqlite:///state.db
trigger: 5 seconds
sources:
  raw.Orders: {type: file, path: data/, format: json, schema: {id: int64, amount: float64}, primary_key: id}
  ticks: {type: rate}
transforms:
  large:
    type: sql
    primary_key: id
    telemetry: {labels: {team: shop}}
    sql: |
      SELECT id, amount
      FROM raw.orders
      WHERE amount > ${LEAST:-100}
sinks:
  out: {type: postgres, from: Large, table: t}
  screen: {type: print, from: ticks}
tests:
  - name: small ones go
    given: {RAW.orders: [{id: 1, amount: 5}]}
    expect: {large: []}
"""


def checked(text: str, **environ: str) -> Checked:
    return check_text(text, "p.yaml", environ={**ENVIRON, **environ})


def problems(text: str, **environ: str) -> list[Problem]:
    return list(checked(text, **environ).problems)


def only(text: str, **environ: str) -> Problem:
    [problem] = problems(text, **environ)
    return problem


def at(problem: Problem) -> tuple[int, int]:
    return problem.place.line, problem.place.column


def test_a_pipeline() -> None:
    spec = checked(GOOD).spec
    assert (spec.name, spec.state, spec.settings) == ("shop", "sqlite:///state.db", {"trigger": 5000})
    assert list(spec.nodes) == ["raw.Orders", "ticks", "large", "out", "screen"]
    assert spec.inputs("large") == ("raw.Orders",)
    assert spec.inputs("out") == ("large",)
    assert spec.primary_key("out") == ("id",)
    assert spec.nodes["large"].model.telemetry is not None
    assert "> 100" in getattr(spec.nodes["large"].model, "sql", "")
    assert str(spec.nodes["large"].place) == "p.yaml:8:3"
    assert str(spec.nodes["large"].place_of("telemetry", "labels", "team")) == "p.yaml:11:26"
    assert str(spec.nodes["large"].place_of("telemetry", "event_time")) == "p.yaml:11:5"
    assert spec.tests[0].given == {"raw.Orders": [{"id": 1, "amount": 5}]}


def test_the_name_is_that_of_the_file_when_it_has_none(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text("sources: {a: {type: rate}}\nsinks: {b: {type: print, from: a}}\n", encoding="utf-8")
    assert load(path, environ=ENVIRON).name == "orders"


@pytest.mark.parametrize("path", [*EXAMPLES, *NODES, *SEED], ids=lambda path: path.stem)
def test_examples_are_right(path: Path) -> None:
    result = check(path, environ=ENVIRON)
    assert [str(problem) for problem in result.problems] == []
    assert result.spec.nodes


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.stem)
def test_the_example_of_a_node_has_it(path: Path) -> None:
    kind, _, type_ = path.stem.partition("-")
    assert any(
        node.type == type_ and node.kind == kind for node in load(path, environ=ENVIRON).nodes.values()
    )


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        ("type: view, sql: \"SELECT id FROM raw.orders WHERE dynamic_table_check('vip', id)\"", "view"),
        ("type: cdc, from: raw.Orders, primary_key: id, sequence_by: id, delete_where: \"dynamic_table_check('vip', id)\"", "cdc"),
    ],
)  # fmt: skip
def test_views_do_not_ask_dynamic_tables(view: str, kind: str) -> None:
    tables = "  vip: {type: dynamic_table, sql: SELECT id FROM raw.orders}\n"
    text = GOOD.replace("  large:\n", f"{tables}  kept: {{{view}}}\n  large:\n")
    with_sink = text.replace("tests:", "  more: {type: blackhole, from: kept}\ntests:")
    [problem] = [one for one in problems(with_sink) if not one.is_warning]
    assert f"the {kind} 'kept' asks the dynamic table 'vip'" in problem.text
    assert problem.hint is not None
    assert "sql node" in problem.hint
    assert problem.place.line == 9
    assert problem.code == "PIPELINE_VIEW"


def replaced(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "where", "text", "hint"),
    [
        ("trigger:", "triger:", "triger", "a pipeline has no part 'triger'", "did you mean 'trigger'?"),
        ("5 seconds", "soon", "soon", "trigger must be a duration", "available_now"),
        ("sqlite:///state.db", "mysql://db/x", "mysql", "state names no state database: 'mysql'", "postgresql"),
        ("sqlite:///state.db", "state.db", "state.db", "state is not the URL of a state database", "sqlite:///state.db"),
        ("trigger:", "checkpoint: s3://b/c\ntrigger:", "s3", "checkpoint must be a folder of this machine", "state:"),
        ("trigger:", "checkpoint: '${EMPTY:-}'\ntrigger:", "'${EMPTY", "checkpoint is empty", "leave it out"),
        ("name: shop", "name: ' '", "' '", "name cannot be", "printable"),
        ("name: shop", "name: shop/clicks", "shop/clicks", "name cannot be 'shop/clicks'", "slashes"),
        ("name: shop", "name: ..", "..", "name cannot be '..'", "dots"),
        ("rate", "rat", "rat}", "unknown source 'rat'", "did you mean 'rate'?"),
        ("type: sql\n", "type: sqll\n", "sqll", "unknown transform 'sqll'", "did you mean 'sql'?"),
        ("type: sql\n", "key: sql\n", "large", "the transform 'large' needs a type", "sql, view"),
        ("type: sql\n", "type: [sql]\n", "[sql]", "is a list", "sql, view"),
        ("table: t", "tabel: t", "tabel", "has no field 'tabel'", "did you mean 'table'?"),
        ("labels", "lables", "lables", "has no field 'telemetry.lables'", "did you mean 'labels'?"),
        ("from: Large", "from: lagre", "lagre", "reads 'lagre', and there is no such node", "did you mean 'large'?"),
        ("from: Large", "from: screen", "screen,", "reads 'screen', which is a sink", "raw.Orders"),
        ("table: t}", "table: t, x y}", "x y", "has no field 'x y'", "in quotes"),
        ("from: Large, ", "", "out:", "the sink 'out' needs 'from'", "add from: ..."),
        ("raw.orders", "raw_orders", "raw_orders", "reads 'raw_orders'", "did you mean 'raw.Orders'?"),
        ("raw.orders", "raw.ordes", "raw.ordes", "reads 'raw.ordes'", "did you mean 'raw.Orders'?"),
        ("raw.orders", "large", "sql: |", "'large' reads itself", "WITH RECURSIVE"),
        ("ticks:", "Large:", "large:", "has the name of the source in line 6", "another name"),
        ("ticks:", "'ti cks':", "'ti cks'", "cannot be the name of a node", "letters"),
        ("primary_key: id}", "primary_key: [id, nr]}", "primary_key: [", "'nr', which is not in the schema", "amount, id"),
        ("RAW.orders", "ticks_", "ticks_", "there is no source 'ticks_'", "did you mean 'ticks'?"),
        ("expect: {large: []}", "expect: {larg: []}", "larg:", "there is no node 'larg'", "did you mean 'large'?"),
        ("expect: {large: []}", "expect: {}", "{}", "expect names no node", "[] for no rows"),
        ("expect: {large: []}", "expect: {large: 5}", "5}\n#", "must be a list", "expect"),
        ("given:", "givn:", "givn", "has no field 'givn'", "did you mean 'given'?"),
        ("${LEAST:-100}", "${LEAST}", "${LEAST}", "LEAST is not set", "${LEAST:-default}"),
        ("SELECT id, amount\n", "SELECT 1;\n", "|\n", "sql must be one query", "SELECT"),
        ("SELECT id, amount\n", "DELETE\n", "|\n", "begins with 'DELETE'", "SELECT"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place(old: str, new: str, where: str, text: str, hint: str) -> None:
    changed = replaced(old, new) + "#\n"
    before = changed[: changed.index(where)]
    place = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    found = problems(changed)
    assert any(at(problem) == place and text in problem.text and hint in problem.hint for problem in found), (
        found
    )


def test_one_error_carries_all_mistakes_in_the_order_of_the_file() -> None:
    text = (
        GOOD.replace("5 seconds", "soon")
        .replace("rate", "rat")
        .replace("table: t", "tabel: t")
        .replace("Large", "lagre")
    )
    with pytest.raises(PipelineError) as caught:
        _ = checked(text).spec
    error = caught.value
    assert [problem.place.line for problem in error.problems] == [3, 6, 17, 17]
    assert error.code == "PIPELINE"
    lines = str(error).splitlines()
    assert lines[0] == "4 mistakes in 'p.yaml'"
    assert lines[1].startswith("  p.yaml:3:10: the pipeline: trigger must be")
    assert lines[2].startswith("    hint: ")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, PipelineError)
    assert copy.problems == error.problems


def test_one_mistake_reads_as_every_error() -> None:
    with pytest.raises(PipelineError) as caught:
        _ = checked(GOOD.replace("rate", "rat")).spec
    assert (caught.value.where, caught.value.code) == ("p.yaml:6:17", "PIPELINE_TYPE")
    assert "did you mean 'rate'?" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5", "a pipeline is a mapping"),
        ("[]", "a pipeline is a mapping"),
        ("name: x", "the pipeline has no sources"),
        ("sources:\nsinks: {}", "the pipeline has no sinks"),
        ("sources: 5\nsinks: {a: {type: print, from: b}}", "'sources' must be a mapping"),
        ("sources: {a: 5}\nsinks: {b: {type: print, from: a}}", "must be a mapping of its fields, and is '5'"),
        ("sources: {a: {type: [x]}}\nsinks: {b: {type: print, from: a}}", "is a list"),
        ("sources: {a: {type: rate}}\nsinks: {b: {type: print, from: a}}\ntests: 5", "'tests' must be a list"),
        ("sources: {a: {type: rate}}\nsinks: {b: {type: print, from: a}}\ntests: [5]", "a test must be a mapping"),
    ],
)  # fmt: skip
def test_wrong_shapes(text: str, words: str) -> None:
    assert any(words in problem.text and problem.hint for problem in problems(text))


def test_cycles_show_their_path() -> None:
    text = """\
sources: {a: {type: rate}}
transforms:
  b: {type: sql, sql: "SELECT * FROM a JOIN d"}
  c: {type: sql, sql: "SELECT * FROM b"}
  d: {type: sql, sql: "SELECT * FROM c"}
sinks: {out: {type: print, from: d}}
"""
    problem = only(text)
    assert problem.text == "'b' reads itself: b <- d <- c <- b"
    assert (problem.code, problem.place.line) == ("PIPELINE_CYCLE", 3)


def test_what_nothing_reads_is_a_warning() -> None:
    text = """\
sources: {a: {type: rate}, b: {type: rate}}
transforms: {c: {type: sql, sql: "WITH b AS (SELECT 1) SELECT * FROM a, b"}}
sinks: {out: {type: print, from: a}}
"""
    result = checked(text)
    assert [(problem.text, at(problem)) for problem in result.warnings] == [
        ("nothing reads the source 'b'", (1, 28)),
        ("nothing reads the transform 'c'", (2, 14)),
    ]
    assert result.mistakes == ()
    assert result.spec.name == "p"


def test_a_trigger_of_what_ends_is_a_warning() -> None:
    text = "trigger: 5 s\nsources: {a: {type: file, path: x, format: csv, mode: {type: bounded}}}\nsinks: {b: {type: print, from: a}}\n"
    problem = only(text)
    assert (problem.is_warning, at(problem)) == (True, (1, 1))
    assert "trigger has no use" in problem.text
    assert problems(text.replace("5 s", "available_now")) == []
    assert problems(text.replace("bounded", "continuous")) == []


def test_a_keyed_sink_needs_a_key() -> None:
    text = (
        "sources: {a: {type: rate}}\nsinks: {out: {type: postgres, from: a, table: t, output_mode: update}}\n"
    )
    problem = only(text)
    assert (problem.code, at(problem)) == ("PIPELINE_PRIMARY_KEY", (2, 9))
    assert "the sink 'out' (postgres) needs a primary key, and 'a' has none" in problem.text
    assert problems(text.replace("rate", "rate, primary_key: value")) == []
    assert problems(text.replace("table: t", "table: t, primary_key: value")) == []


@pytest.mark.parametrize(
    "source",
    [
        '{type: postgres, url: "${NOWHERE}", table: t}',
        '{type: "${NOWHERE}"}',
        '{type: kafka, topic: t, data_format: "${NOWHERE}", bootstrap_servers: b}',
        '{type: kafka, topic: t, batch_size: "1${NOWHERE}", bootstrap_servers: b}',
    ],
)
def test_a_variable_without_a_value_is_one_mistake(source: str) -> None:
    text = f"sources: {{a: {source}}}\nsinks: {{out: {{type: print, from: a}}}}\n"
    problem = only(text)
    assert problem.text == "the variable NOWHERE is not set"
    assert at(problem) == (1, text.index("${") + 1)


def test_a_misspelt_field_that_must_be_there_is_suggested_first() -> None:
    text = "sources: {a: {type: rate}}\nsinks: {out: {type: print, form: a}}\n"
    missing, misspelt = problems(text)
    assert missing.text == "the sink 'out' needs 'from'"
    assert misspelt.hint.startswith("did you mean 'from'? Known fields: format, from, ")


@pytest.mark.parametrize("type_", ["view, primary_key: value", "sql", "dynamic_table"])
@pytest.mark.parametrize(
    ("query", "written", "hint"),
    [
        ("SELECT value FROM ordrs", "ordrs", "did you mean 'orders'?"),
        ("SELECT value FROM orders JOIN ordrs USING (value)", "ordrs", "did you mean 'orders'?"),
        ("SELECT value FROM raw.tiks", "raw.tiks", "did you mean 'raw.ticks'?"),
        ("SELECT value FROM out", "out", "nodes that can be read"),
    ],
)
def test_a_misspelt_node_in_a_query_is_one_mistake(type_: str, query: str, written: str, hint: str) -> None:
    text = f"""\
sources: {{orders: {{type: rate}}, raw.ticks: {{type: rate}}}}
transforms: {{totals: {{type: {type_}, sql: "{query}"}}}}
sinks: {{out: {{type: print, from: orders}}}}
"""
    problem = only(text)
    assert problem.code == "PIPELINE_UNKNOWN_NODE"
    assert f"the transform 'totals' reads '{written}'" in problem.text
    assert hint in problem.hint
    assert at(problem) == (2, text.splitlines()[1].index(written) + 1)


def test_tables_of_catalogs_and_files_are_no_nodes() -> None:
    text = """\
sources: {orders: {type: rate}}
transforms:
  b:
    type: sql
    sql: SELECT * FROM orders JOIN lake.shop.orders JOIN parquet.`a/b` JOIN 'c.csv' JOIN range(5)
sinks: {out: {type: print, from: b}}
"""
    assert problems(text) == []
    assert "did you mean 'orders'?" in only(text.replace("lake.shop.orders", "order")).hint


BESIDE = """\
sources: {orders: {type: rate}}
transforms:
  customers: {type: lookup, backend: file, path: c.csv, on: value}
  vip: {type: dynamic_table, sql: SELECT value FROM orders}
  node: {NODE}
sinks: {out: {type: print, from: READ}, all: {type: print, from: orders}}
"""
"""A table of a look-up, a dynamic table, and a node that may read them."""


@pytest.mark.parametrize(
    ("node", "words", "hint"),
    [
        ("type: view, sql: SELECT * FROM orders JOIN customers USING (value)", "reads 'customers', a table that only sql nodes join", "JOIN customers"),
        ("type: view, sql: SELECT * FROM customers", "reads 'customers', a table that only sql nodes join", "JOIN customers"),
        ("type: dedup, from: customers, by: value", "reads 'customers', a table that only sql nodes join", "`from:`"),
        ("type: script, from: customers, script: 'function invoke(r) {}'", "reads 'customers', a table that only", "`from:`"),
        ("type: lookup, from: customers, backend: file, path: c.csv, on: value", "reads 'customers', a table that only", "`from:`"),
        ("type: sql, sql: SELECT * FROM Customers", "reads only tables", "a node whose rows come"),
        ("type: sql, sql: SELECT * FROM vip", "reads the dynamic table 'vip', which gives no rows", "dynamic_table_check('vip', a_column)"),
        ("type: view, sql: SELECT * FROM vip", "reads the dynamic table 'vip', which gives no rows", "dynamic_table_check('vip', a_column)"),
        ("type: expect, from: vip, expectations: {a: {condition: a > 1}}", "reads the dynamic table 'vip'", "dynamic_table_check"),
        ("type: view, sql: \"SELECT * FROM orders WHERE dynamic_table_check('vip', value)\"", "asks the dynamic table 'vip'", "in a sql node that the view reads"),
        ("type: view, sql: SELECT 1", "'node' reads no other node", "orders"),
        ("type: sql, sql: SELECT 1", "'node' reads no other node", "orders"),
        ("type: view, sql: DROP TABLE orders", "sql must be a query, and begins with 'DROP'", "SELECT"),
        ("type: view, sql: ''", "sql must be one query, got 0 statements", "SELECT"),
        ("type: dynamic_table, sql: garbage(", "sql must be a query, and begins with 'garbage'", "SELECT"),
    ],
)  # fmt: skip
def test_what_stands_beside_the_rows_of_others_is_read_by_sql_alone(node: str, words: str, hint: str) -> None:
    text = BESIDE.replace("NODE", node).replace("READ", "orders")
    found = [problem for problem in checked(text).mistakes if words in problem.text]
    assert [hint in problem.hint and problem.place.line == 5 for problem in found] == [True], problems(text)


@pytest.mark.parametrize("read", ["customers", "vip"])
def test_no_sink_takes_what_stands_beside_the_rows_of_others(read: str) -> None:
    joined = "type: sql, sql: \"SELECT * FROM orders JOIN customers USING (value) WHERE dynamic_table_check('vip', value)\""
    text = BESIDE.replace("NODE", joined)
    assert problems(text.replace("READ", "node")) == []
    [mistake] = checked(text.replace("READ", read)).mistakes
    assert (mistake.code, at(mistake)) == ("PIPELINE_TABLE", (6, 34))


@pytest.mark.parametrize(
    ("node", "words", "hint"),
    [
        ("type: sql, sql: SELECT * FROM orders UNION ALL SELECT * FROM more, on_error: drop", "tells only rows of one node apart", "unite the rows"),
        ("type: view, sql: SELECT * FROM orders, dead_letter: {path: x}", "has no field 'dead_letter'", "put an expect before it"),
        ("type: dedup, from: orders, by: value, on_error: drop", "has no field 'on_error'", "put an expect before it"),
        ("type: lookup, backend: file, path: c.csv, on_error: drop", "on_error has no use without `from`", "`from: NODE`"),
        ("type: script, from: orders, script: 'function invoke(r) {}', dead_letter: {path: x}", "dead_letter gets no rows with `on_error: fail`", "on_error: dead_letter"),
        ("type: expect, from: orders, expectations: {a: {condition: a > 1}}, on_error: drop, dead_letter: {path: x}", "with `on_error: drop`", "on_error: dead_letter"),
    ],
)  # fmt: skip
def test_rows_that_fail_are_told_apart_where_they_come_one_by_one(node: str, words: str, hint: str) -> None:
    beside = BESIDE.replace("rate}}\n", "rate}, more: {type: rate}}\n", 1)
    found = problems(beside.replace("NODE", node).replace("READ", "orders"))
    assert [hint in problem.hint for problem in found if words in problem.text] == [True], found


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("type: postgres, table: t, primary_key: value, on_error: drop", None),
        ("type: postgres_aggregate, landing_table: l, agg_table: a, primary_key: value, aggregates: {n: {from: value, fn: sum}}, on_error: drop", None),
        ("type: clickhouse, table: t, url: 'http://c:8123', on_error: dead_letter, dead_letter: {path: x}", None),
        ("type: kafka, topic: t, bootstrap_servers: 'b:1', on_error: drop", None),
        ("type: kafka, topic: t, bootstrap_servers: 'b:1', exactly_once: false, on_error: drop", "on_error needs transactions"),
        ("type: webhook, url: 'http://h', on_error: drop", None),
        ("type: file, path: x, on_error: drop", "has no field 'on_error'"),
        ("type: iceberg, table: lake.t, on_error: drop", "has no field 'on_error'"),
        ("type: print, on_error: drop", "has no field 'on_error'"),
    ],
)  # fmt: skip
def test_sinks_that_leave_out_what_their_systems_refuse(sink: str, words: str | None) -> None:
    text = f"sources: {{orders: {{type: rate}}}}\nsinks: {{out: {{from: orders, {sink}}}}}\n"
    found = [problem.text for problem in problems(text) if "on_error" in problem.text]
    assert len(found) == (0 if words is None else 1), found
    assert words is None or words in found[0]


def test_a_number_is_the_text_that_was_written_where_a_text_is_meant() -> None:
    text = """\
sources: {a: {type: file, path: 0123, format: csv, primary_key: 007, schema: {007: int}}}
sinks:
  o:
    type: webhook
    from: a
    url: http://h
    batch_rows: 0x10
    headers: {A: 0123456, B: 1e5, C: 1.10, D: true, E: 0x10, F: .inf, G: 5, H: 12e4567}
tests: [{name: 1.10, given: {a: [{x: 007}]}, expect: {a: []}}]
"""
    spec = checked(text).spec
    source, sink = spec.nodes["a"].model, spec.nodes["o"].model
    assert isinstance(source, FileNode)
    assert isinstance(sink, WebhookNode)
    assert (source.path, source.primary_key) == ("0123", ("007",))
    assert sink.headers == {
        "A": "0123456", "B": "1e5", "C": "1.10", "D": "true", "E": "0x10", "F": ".inf", "G": "5", "H": "12e4567",
    }  # fmt: skip
    assert sink.batch_rows == 16
    assert (spec.tests[0].name, json.dumps(spec.tests[0].given)) == ("1.10", '{"a": [{"x": 7}]}')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("type: rate", "type: rate, primary_key: {a: b}", "primary_key must be a list, got dict"),
        ("type: rate", "type: rate, primary_key: [true]", "primary_key.0 must be text, got True"),
        ("type: rate", "type: rate, telemetry: 5", "telemetry must be a dictionary, got 5"),
        ("type: rate", "type: rate, telemetry: {labels: {a: ~}}", "telemetry.labels must have texts, got NoneType for 'a'"),
        ("type: rate", f"type: rate, rows_per_second: {'9' * 30}", "rows_per_second must be 9,223,372,036,854,775,807 at most"),
        ("type: rate", 'type: file, format: csv, schema: x int, path: "a\\0b"', "path has the character U+0000"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_said_in_plain_words(old: str, new: str, words: str) -> None:
    text = "sources: {orders: {type: rate}}\nsinks: {out: {type: print, from: orders}}\n"
    assert [words in problem.text for problem in problems(text.replace(old, new))] == [True], problems(
        text.replace(old, new)
    )


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("type: lookup, backend: http, from: orders, on: value, schema: {a: string}, url: 'http://h/{value'", "url has a brace that is not closed"),
        ("type: lookup, backend: http, from: orders, on: value, schema: {a: string}, url: http://h/", "url has no {value}, though `on` does"),
        ("type: lookup, backend: http, on: value, schema: {a: string}, url: 'http://h/{value}'", "backend http needs `from`"),
        ("type: lookup, backend: file, path: c.csv, from: orders", "from needs `on`"),
        ("type: lookup, backend: file, path: c.csv, table: t", "table is no field of the backend file"),
        ("type: lookup, backend: file", "backend file needs `path`"),
        ("type: dynamic_table, backend: Postgres", "backend Postgres needs `table`"),
        ("type: dynamic_table, table: t", "table is no field of the backend InMemory"),
        ("type: dynamic_table, value_type: int, sql: SELECT value FROM orders", "value_type has no use beside `sql`"),
        ("type: cdc, from: orders, primary_key: a, sequence_by: b, exclude: a", "exclude names 'a', which is part of the primary key"),
    ],
)  # fmt: skip
def test_mistakes_about_several_fields_are_sentences(node: str, words: str) -> None:
    found = problems(BESIDE.replace("NODE", node).replace("READ", "orders"))
    assert any(problem.text.startswith(f"the transform 'node': {words}") for problem in found), found


def test_a_dynamic_table_has_no_rows_to_expect() -> None:
    text = BESIDE.replace("NODE", "type: sql, sql: SELECT * FROM orders").replace("READ", "node")
    text += "tests: [{name: x, expect: {vip: []}}]\n"
    [mistake] = checked(text).mistakes
    assert (mistake.code, at(mistake)) == ("PIPELINE_TEST", (7, 28))
    assert "the test 'x': the dynamic table 'vip' gives no rows" in mistake.text


def test_rows_may_be_given_to_what_asks_others() -> None:
    text = BESIDE.replace("NODE", "type: sql, sql: SELECT * FROM orders").replace("READ", "node")
    tests = "tests: [{name: x, given: {GIVEN: []}, expect: {out: []}}]\n"
    assert list(checked(text + tests.replace("GIVEN", "Customers")).spec.tests[0].given) == ["customers"]
    for name in ("node", "vip", "out"):
        [mistake] = checked(text + tests.replace("GIVEN", name)).mistakes
        assert f"there is no source '{name}'" in mistake.text


def test_the_rows_of_a_sink_are_those_of_the_node_that_it_reads() -> None:
    spec = checked(
        BESIDE.replace("NODE", "type: sql, sql: SELECT * FROM orders").replace("READ", "Node")
    ).spec
    assert [spec.rows_of(name) for name in ("out", "node", "all")] == ["node", "node", "orders"]
    assert last_node(spec) == shown_node(spec, "OUT") == "node"
    for table in ("customers", "vip"):
        with pytest.raises(ConfigError, match=f"'{table}' is a table for sql nodes"):
            shown_node(spec, table)


def test_secrets_are_in_no_message() -> None:
    text = (
        GOOD.replace("5 seconds", "${SOON}")
        .replace("rate", "'${TYPE}'")
        .replace("table: t", "table: t, x: '${PW}'")
    )
    result = checked(text, SOON="geheim-1", TYPE="geheim-2", PW="geheim-3")
    assert len(result.mistakes) >= 3
    assert "geheim" not in "\n".join(map(str, result.problems))
    assert "***" in "\n".join(map(str, result.problems))
    spec = checked(GOOD, LEAST="4711").spec
    assert "4711" in spec.secrets
    assert "geheim" in spec.secrets


def test_a_missing_address_says_the_variable() -> None:
    result = check_text(GOOD, "p.yaml", environ={})
    [problem] = result.mistakes
    assert "the sink 'out' needs 'url'" in problem.text
    assert "PENSTOCK_POSTGRES_URL" in problem.hint


def test_anchors_stand_under_names_with_x() -> None:
    text = """\
x-defaults: &defaults {type: rate, telemetry: {labels: {team: shop}}}
sources: {a: {<<: *defaults}, b: {<<: *defaults, primary_key: value}}
transforms: {c: {type: sql, sql: SELECT * FROM a UNION ALL SELECT * FROM b}}
sinks: {out: {type: print, from: c}}
"""
    spec = checked(text).spec
    assert spec.nodes["a"].model.telemetry == spec.nodes["b"].model.telemetry


def test_a_plugin_that_cannot_be_loaded_has_a_place() -> None:
    text = "sources: {a: {type: rate}}\nsinks: {b: {type: python, module: 'no_such:Sink', from: a}}\n"
    assert at(only(text)) == (2, 19)
    assert "no_such" in only(text).text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pipelin.yaml", "did you mean 'pipeline.yaml'?"),
        ("nowhere/a.yaml", "penstock init"),
        (".", "pipeline.yaml"),
    ],
)
def test_a_file_that_is_not_there(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "pipeline.yaml").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        check(tmp_path / name, environ={})
    assert caught.value.code == "PIPELINE_FILE"
    assert hint in (caught.value.hint or "")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"PAR1\x00\x01")
    [problem] = check(path, environ={}).problems
    assert problem.text == "the file is binary"


PREPROCESSOR = """
import penstock as ps

def add_labels(document):
    if document.get("name") == "refused":
        raise ps.ConfigError("refused by ${SECRET}", code="OWN", hint="another name")
    for node in document["sources"].values():
        node.setdefault("telemetry", {"labels": {"ratio": 0.5, "team": "shop"}})
    document["sinks"]["copy"] = {"type": "print", "from": document.get("description", "a")}
    return document
"""


@pytest.fixture
def preprocessor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with a preprocessor."""
    name = "penstock_test_labels"
    (tmp_path / f"{name}.py").write_text(PREPROCESSOR, encoding="utf-8")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    points = f"[penstock.preprocessors]\nlabels = {name}:add_labels\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(name, None)


@pytest.mark.usefixtures("preprocessor")
def test_preprocessors_change_what_is_checked() -> None:
    text = "sources:\n  a: {type: rate}\nsinks:\n  b: {type: print, from: a}\n"
    spec = checked(text).spec
    assert list(spec.nodes) == ["a", "b", "copy"]
    telemetry = spec.nodes["a"].model.telemetry
    assert telemetry is not None
    assert telemetry.labels == {"ratio": "0.5", "team": "shop"}
    assert str(spec.nodes["b"].place_of("from")) == "p.yaml:4:20"
    assert at(only(f"description: c\n{text}")) == (5, 3)
    refused = only(f"name: refused\n{text}")
    assert (refused.code, refused.hint) == ("OWN", "another name")


@pytest.mark.parametrize(
    "node", ["type: sql, sql: SELECT * FROM BEFORE", "type: handler, url: 'http://h', from: BEFORE"]
)
def test_twice_the_nodes_take_twice_the_time(node: str) -> None:
    def calls(count: int) -> int:
        names = ["a", *(f"t{number}" for number in range(count))]
        nodes = [f"  {name}: {{{node.replace('BEFORE', before)}}}\n" for before, name in pairwise(names)]
        sinks = [f"  o{name}: {{type: postgres, table: t, from: {name}}}\n" for name in names[1:]]
        text = f"sources: {{a: {{type: rate}}}}\ntransforms:\n{''.join(nodes)}sinks:\n{''.join(sinks)}"
        profile = cProfile.Profile()
        found = profile.runcall(problems, text)
        assert {problem.code for problem in found} == {"PIPELINE_PRIMARY_KEY"}
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)
    assert calls(80) < 2.6 * calls(40)
