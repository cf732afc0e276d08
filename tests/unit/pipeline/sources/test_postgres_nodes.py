"""The nodes `postgres` and `postgres_cdc`: what users write becomes the options of the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.options import OptionsOwner, read_options
from penstock.pipeline.nodes import SOURCE_NODES
from penstock.pipeline.sources.postgres import PostgresNode
from penstock.pipeline.sources.postgres_cdc import PostgresCdcNode

URL = "postgresql://ann:secret@db/shop"
SETTINGS = Settings(home=Path("/nowhere"), postgres_url=URL)


def test_a_node_gives_the_source_what_the_user_wrote() -> None:
    node = read_options(
        PostgresNode,
        {
            "type": "postgres",
            "table": "orders",
            "schema": "shop",
            "primary_key": "id",
            "retry_for": "1 minute",
        },
        owner=OptionsOwner("the node"),
        settings=SETTINGS,
    )
    assert node.is_bounded
    source = node.source(SETTINGS)
    assert (source.options.namespace, source.options.primary_key, source.options.retry_for) == (
        "shop",
        ("id",),
        60_000,
    )
    assert source.options.url == URL
    assert "secret" not in repr(node) + repr(source.options)


def test_a_followed_table_has_a_slot_with_the_names_of_pipeline_and_node() -> None:
    node = PostgresCdcNode.model_validate({"type": "postgres_cdc", "table": "orders", "url": URL})
    assert not node.is_bounded
    assert node.source(SETTINGS).slot.name == "penstock_orders"
    slot = node.source(SETTINGS).named("shop", "orders").slot
    assert (slot.name, slot.publication, slot.create) == ("penstock_shop_orders",) * 2 + (True,)
    names = {
        node.source(SETTINGS).named(*names).slot.name for names in (("a_b", "c"), ("a", "b_c"), ("A.b", "c"))
    }
    assert len(names) == 3
    assert max(len(node.source(SETTINGS).named("p" * 80, "n").slot.name), 0) <= 63
    own = PostgresCdcNode.model_validate(
        {"type": "postgres_cdc", "table": "orders", "url": URL, "slot": "mine", "create": False}
    )
    assert own.source(SETTINGS).named("shop", "orders").slot.name == "mine"


def test_mistakes_are_told_without_the_password() -> None:
    with pytest.raises(ConfigError, match="no name of a slot"):
        read_options(
            PostgresCdcNode,
            {"type": "postgres_cdc", "table": "t", "slot": "Big-Name", "url": URL},
            owner=OptionsOwner("it"),
        )
    with pytest.raises(ConfigError) as error:
        read_options(
            PostgresNode,
            {"type": "postgres", "table": "t", "url": "postgresql//ann:secret@db"},
            owner=OptionsOwner("it"),
        )
    assert "secret" not in str(error.value)
    with pytest.raises(ConfigError, match="no option 'tabel'"):
        read_options(
            PostgresNode,
            {"type": "postgres", "table": "t", "tabel": "t", "url": URL},
            owner=OptionsOwner("it"),
        )


def test_the_models_import_nothing_slow() -> None:
    modules = [SOURCE_NODES.builtin[name].partition(":")[0] for name in ("postgres", "postgres_cdc")]
    slow = "pyspark pyarrow psycopg numpy pandas"
    program = (
        f"import sys, {', '.join(modules)}; print([name for name in {slow.split()!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
