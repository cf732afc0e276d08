"""What is secret in a pipeline is in nothing that is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.pipeline.dead_letter import Place
from penstock.pipeline.load import Checked, check_text
from penstock.pipeline.node import DeadLetter
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
    letters = Place(DeadLetter.model_validate({"type": "postgres", "table": "t"}), "", settings)
    for ask in (
        lambda: postgres_url(lookup, settings),
        lambda: table.dynamic_table(settings, name="d"),
        letters.letters,
    ):
        with pytest.raises(ConfigError, match="not an address of PostgreSQL") as caught:
            ask()
        assert "hunter2" not in str(caught.value)
