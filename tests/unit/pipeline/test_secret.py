"""What is secret in a pipeline is in nothing that is said about it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.pipeline import preprocess
from penstock.pipeline.dead_letter import LetterStore
from penstock.pipeline.echo import echo
from penstock.pipeline.load import Checked, check_text
from penstock.pipeline.node import DeadLetter
from penstock.pipeline.secret import hide
from penstock.pipeline.transforms.dynamic_table import DynamicTableNode
from penstock.transforms.lookup.options import LookupOptions
from penstock.transforms.lookup.relation import postgres_url

SOURCES = "sources: {a: {type: rate}}\n"
SINKS = "sinks: {out: {type: blackhole, from: a}}\n"
MALFORMED = "postgresql//ann:hunter2@db/shop"


def said(checked: Checked) -> str:
    return "\n".join(map(str, checked.problems))


@pytest.mark.parametrize(
    "text",
    [
        f"sources: {{a: {{type: postgres, table: t, url: '{MALFORMED}'}}}}\n{SINKS}",
        f"sources: {{a: {{type: postgres_cdc, table: t, url: '{MALFORMED}'}}}}\n{SINKS}",
        f"{SOURCES}sinks: {{out: {{type: postgres, from: a, table: t, url: '{MALFORMED}'}}}}",
        f"{SOURCES}sinks: {{out: {{type: postgres_aggregate, from: a, table: t, primary_key: value, url: '{MALFORMED}'}}}}",
        f"{SOURCES}transforms: {{l: {{type: lookup, backend: postgres, from: a, on: value, table: t, url: '{MALFORMED}'}}}}\n{SINKS}",
        f"{SOURCES}transforms: {{d: {{type: dynamic_table, backend: Postgres, table: t, url: '{MALFORMED}'}}}}\n{SINKS}",
        f"{SOURCES}transforms: {{e: {{type: script, from: a, script: x, on_error: dead_letter, "
        f"dead_letter: {{type: postgres, table: t, url: '{MALFORMED}'}}}}}}\n{SINKS}",
    ],
)
def test_a_malformed_address_of_postgres_is_refused_without_its_password(text: str) -> None:
    checked = check_text(text, "p.yaml", environ={})
    assert "not an address of PostgreSQL" in said(checked)
    assert "hunter2" not in said(checked)


def test_a_malformed_address_in_the_settings_is_refused_without_its_password(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, postgres_url=MALFORMED)
    lookup = LookupOptions.model_validate({"backend": "postgres", "table": "t"})
    table = DynamicTableNode.model_validate({"type": "dynamic_table", "backend": "Postgres", "table": "t"})
    store = LetterStore(DeadLetter.model_validate({"type": "postgres", "table": "t"}), "", settings)
    for ask in (
        lambda: postgres_url(lookup, settings),
        lambda: table.dynamic_table(settings, name="d"),
        store.letters,
    ):
        with pytest.raises(ConfigError, match="not an address of PostgreSQL") as caught:
            ask()
        assert "hunter2" not in str(caught.value)


QUOTED = "pa'ss\\wo\"rd with ü"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nabc\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "shown",
    [
        QUOTED,
        repr(QUOTED),
        json.dumps(QUOTED),
        json.dumps(QUOTED, ensure_ascii=False),
        "'" + QUOTED.replace("'", "''") + "'",
        f"https://host/?key={quote_plus(QUOTED)}",
        QUOTED.upper(),
        repr({"password": QUOTED}),
        f"'{QUOTED[:14]}'",
        f"{QUOTED[:15]}...",
    ],
)
def test_a_secret_is_hidden_in_every_way_in_which_it_may_be_written(shown: str) -> None:
    text = hide(f"got {shown}", {QUOTED})
    assert text.startswith("got ")
    assert "***" in text
    assert "ss" not in text.lower().replace("password", "")


def test_each_long_line_of_a_secret_is_hidden() -> None:
    assert hide("line 2 is 'MIIEvQIBADANBgkqhkiG', line 3 is abc", {KEY}) == "line 2 is '***', line 3 is abc"


def test_what_begins_like_a_secret_is_shown() -> None:
    secrets = {"postgresql://ann:hunter2@db/shop"}
    text = "for example postgresql://user:password@host:5432/database"
    assert hide(text, secrets) == text


def test_texts_without_secrets_are_fast() -> None:
    secrets = frozenset(f"{number}-s3cret-{number}" for number in range(200))
    text = "nothing of it stands in this text, however long it is. " * 20
    hide(text, secrets)
    began = time.perf_counter()
    for _ in range(100):
        assert hide(text, secrets) == text
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("pa'ss\\wo\"rd", "sources: {a: {type: rate, rows_per_second: '${S}'}}\n" + SINKS),
        ("MixedCaseSecret", "sources: {a: {type: file, path: x, format: '${S}'}}\n" + SINKS),
        ("secretword another one", SOURCES + "transforms: {q: {type: sql, sql: '${S}'}}\n" + SINKS),
        ("SELECT secret; SELECT word", SOURCES + "transforms: {q: {type: sql, sql: '${S}'}}\n" + SINKS),
        ("id notatype1, secretword", "sources: {a: {type: file, path: x, schema: '${S}'}}\n" + SINKS),
        ("secret word " * 10, "name: '${S}'\n" + SOURCES + SINKS),
        ("secret word " * 10, SOURCES + "sinks: {'${S}': {type: blackhole, from: a}}"),
        ("secret word " * 10, "sources: {a: '${S}'}\n" + SINKS),
    ],
)
def test_no_mistake_shows_a_part_of_what_a_variable_gave(value: str, text: str) -> None:
    checked = check_text(text, "p.yaml", environ={"S": value})
    shown = said(checked).lower()
    assert checked.mistakes
    for part in ("secret", "ss\\", "notatype1"):
        assert part not in shown


def test_long_values_are_cut() -> None:
    checked = check_text(
        f"{SOURCES}sinks: {{'{'no name ' * 1000}': {{type: blackhole, from: a}}}}", "p.yaml", environ={}
    )
    assert len(said(checked)) < 500


def test_secrets_that_are_no_variables_are_known() -> None:
    hook = "https://hooks.example.com/services/T0/B0/abcdef"
    checked = check_text(
        "sources: {k: {type: kafka, topic: t, bootstrap_servers: b, kafka.ssl.keystore.key: PEM-abc, kafka.sasl.username: ann}}\n"
        "transforms: {h: {type: handler, from: k, url: 'http://h/score?key=q-key', schema: {x: int}, secret_name: S}}\n"
        f"sinks:\n  out: {{type: webhook, from: h, url: '{hook}', headers: {{X-Key: key-of-x, Content-Type: text/json}}}}\n"
        "  pg: {type: postgres, from: h, table: t, output_mode: append, url: 'postgresql://ann:p%40ss@db/shop'}\n",
        "p.yaml",
        environ={"S": "Bearer of-s"},
    )
    assert checked.mistakes == ()
    assert checked.spec.secrets == {
        "PEM-abc",
        "key=q-key",
        "Bearer of-s",
        "of-s",
        "/services/T0/B0/abcdef",
        "key-of-x",
        "p%40ss",
        "p@ss",
    }
    assert hide(f"webhook {hook} answers 403", checked.spec.secrets) == (
        "webhook https://hooks.example.com*** answers 403"
    )


def test_what_a_preprocessor_moves_stays_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(document: dict[str, Any], *, path: str) -> dict[str, Any]:
        secret = document["sinks"]["out"].pop("table")
        document["transforms"] = {"q": {"type": "sql", "sql": f"SELECT '{secret}' AS s FROM a"}}
        document["sinks"]["out"] = {"type": "print", "from": "q"}
        return document

    monkeypatch.setattr(preprocess, "preprocessed", moved)
    monkeypatch.setattr(preprocess, "entry_points", lambda **_: [1])
    text = f"{SOURCES}sinks: {{out: {{type: postgres, from: a, table: '${{S}}'}}}}"
    checked = check_text(text, "p.yaml", environ={"S": "hunter2"})
    assert checked.spec.nodes["q"].secrets == {"hunter2"}
    shown = echo(checked)
    assert "SELECT '***' AS s FROM a" in shown
    assert "hunter2" not in shown
