"""Pipelines as they are understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.echo import as_json, as_mapping, echo
from pipeline_text import check_text

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
ENVIRON = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann:geheim@db/x",
    "PENSTOCK_CLICKHOUSE_URL": "http://click:8123",
    "WEBHOOK_URL": "http://hook/",
}

TEXT = """\
x-note: &labels {team: shop, nr: 007}
state: postgresql://ann:geheim@db/state
sources: {orders: {path: "${DATA}", type: file, format: json, schema: {id: int64}}}
transforms:
  large: {type: sql, primary_key: [id], sql: "SELECT * FROM orders WHERE id > ${LEAST:-100} AND code = '$${x}'"}
sinks:
  out: {url: "postgresql://ann:geheim@db/x", from: large, type: postgres, table: "${TABLE}"}
  hook: {type: webhook, from: large, url: "http://u:geheim@h/", headers: {Authorization: "Bearer geheim", X: "${TOKEN}"}}
  same: {type: postgres, from: large, table: t, telemetry: {labels: *labels}}
"""


def test_a_pipeline_is_normalised_without_secrets() -> None:
    environ = {**ENVIRON, "DATA": "geheim-data/", "TABLE": "geheim_table", "TOKEN": "geheim"}
    checked = check_text(TEXT, "shop.yaml", environ=environ)
    text = echo(checked)
    assert "geheim" not in text
    read = as_mapping(checked)
    assert (read["name"], read["state"]) == ("shop", "postgresql://ann:***@db/state")
    assert list(read["sources"]["orders"])[:2] == ["type", "path"]
    assert read["sources"]["orders"]["path"] == "${DATA}"
    assert read["sources"]["orders"]["mode"] == {"type": "bounded"}
    assert read["transforms"]["large"]["sql"].endswith("id > ${LEAST:-100} AND code = '$${x}'")
    assert list(read["sinks"]["out"])[:2] == ["type", "from"]
    assert (read["sinks"]["out"]["url"], read["sinks"]["out"]["table"]) == ("***", "${TABLE}")
    assert read["sinks"]["hook"]["headers"]["X"] == "${TOKEN}"
    assert read["sinks"]["hook"]["headers"]["Authorization"] == "***"
    assert read["sinks"]["same"]["url"] == "${PENSTOCK_POSTGRES_URL}"
    assert read["sinks"]["same"]["telemetry"] == {"labels": {"team": "shop", "nr": 7}}
    assert "nr: 007\n" in text
    assert '"nr": "007"' in as_json(checked)


def test_literal_secrets_are_hidden_by_the_names_of_their_fields() -> None:
    text = """\
sources:
  k:
    type: kafka
    topic: t
    bootstrap_servers: b
    kafka.ssl.keystore.key: geheim
    kafka.ssl.key.pem: geheim
    telemetry: {labels: {apiToken: geheim, auth: geheim, passphrase: geheim, team: shop}}
transforms:
  q: {type: sql, sql: "SELECT * FROM k -- https://geheim-geheim-geheim@host/"}
sinks: {out: {type: print, from: q}}
"""
    shown = echo(check_text(text, "p.yaml", environ={}))
    assert "geheim" not in shown
    assert "team: shop" in shown
    assert "https://***@host/" in shown


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_printed_is_the_same_pipeline(path: Path) -> None:
    checked = check_text(path.read_text(encoding="utf-8"), path.name, environ=ENVIRON)
    again = check_text(echo(checked), path.name, environ=ENVIRON)
    models = {name: node.model for name, node in checked.spec.nodes.items()}
    assert {name: node.model for name, node in again.spec.nodes.items()} == models
    assert [(test.given, test.expect) for test in again.spec.tests] == [
        (test.given, test.expect) for test in checked.spec.tests
    ]
    assert echo(again) == echo(checked)


def test_texts_stay_texts() -> None:
    rows = '[{a: "5", b: "true", c: "no", d: "1e3", e: "0o7", f: "a: b", g: "", h: "- x\\n y ", i: null, j: 1.5}]'
    text = f"sources: {{a: {{type: rate}}}}\nsinks: {{b: {{type: print, from: a}}}}\ntests: [{{name: x, given: {{a: {rows}}}, expect: {{b: []}}}}]"
    checked = check_text(text, environ=ENVIRON)
    assert check_text(echo(checked), environ=ENVIRON).spec.tests[0].given == checked.spec.tests[0].given


def test_a_source_within_a_source_shows_all_but_its_secrets() -> None:
    text = """\
sources:
  orders:
    type: hybrid
    cursor: id
    history: {type: clickhouse, table_name: orders, url: "http://ann:geheim@h:8123/", password: "geheim"}
    live: {type: kafka, topic: orders, data_format: avro, schema_registry: "http://r:8081", schema_registry_auth: "a:geheim"}
sinks:
  out: {type: webhook, from: orders, url: "http://u:geheim@h/", batch_size: 5}
"""
    checked = check_text(text, environ=ENVIRON)
    read = as_mapping(checked)
    orders = read["sources"]["orders"]
    assert orders["history"] == {
        "type": "clickhouse",
        "table_name": "orders",
        "url": "***",
        "password": "***",
    }
    assert (orders["live"]["topic"], orders["live"]["schema_registry_auth"]) == ("orders", "***")
    assert read["sinks"]["out"]["batch_rows"] == 5
    assert "batch_size" not in read["sinks"]["out"]
    assert "geheim" not in echo(checked)


def test_names_and_defaults_with_variables() -> None:
    text = "sources: {a: {type: rate}}\nsinks: {'${SINK}': {type: webhook, from: a, url: '${U:-http://ann:geheim@h/}'}}\n"
    read = as_mapping(check_text(text, environ={**ENVIRON, "SINK": "out"}))
    assert read["sinks"]["out"]["url"] == "${U:-***}"
