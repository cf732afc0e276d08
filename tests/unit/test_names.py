"""A name says what a thing is, and says it of one thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# Words that say how a value was got, or from where it comes, and not what it is.
SAYS_NOTHING = frozenset(
    [
        "aside",
        "blame",
        "each",
        "found",
        "given",
        "got",
        "held",
        "kept",
        "known",
        "made",
        "one",
        "said",
        "told",
        "whole",
    ]
)
MAY_SAY_NOTHING = {
    ("pipeline/fields.py", "given"): "the key of a test in YAML",
    ("pipeline/spec.py", "given"): "the key of a test in YAML",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """Names that one class in each of these folders or files has."""

    homes: tuple[str, ...]
    names: frozenset[str]
    reason: str


SHARED = (
    Shared(
        ("plan/node.py", "operators/"),
        frozenset(
            [
                "Aggregate",
                "Asof",
                "Expand",
                "Filter",
                "Generate",
                "Join",
                "Project",
                "Recursive",
                "SessionWindow",
                "Single",
                "TopK",
                "Union",
                "Values",
                "Window",
            ]
        ),
        "a node of a plan, and the operator that computes it",
    ),
    Shared(
        ("operators/source.py", "sources/base.py"),
        frozenset({"Source"}),
        "where rows enter: a flow, and a stream; errors name an operator by its class",
    ),
    Shared(
        ("sources/", "sinks/"),
        frozenset(
            [
                "ClickHouseOptions",
                "CsvOptions",
                "FileOptions",
                "IcebergOptions",
                "KafkaOptions",
                "PostgresOptions",
            ]
        ),
        "the options of the source and of the sink of one system",
    ),
    Shared(
        ("pipeline/sources/", "pipeline/sinks/"),
        frozenset(["ClickHouseNode", "FileNode", "IcebergNode", "KafkaNode", "PostgresNode"]),
        "the source node and the sink node of one type",
    ),
    Shared(
        ("sources/clickhouse/", "sources/postgres/", "sinks/clickhouse/", "sinks/postgres/"),
        frozenset({"Table"}),
        "a table of the server, as the connector in this folder needs it",
    ),
    Shared(
        ("sources/postgres/", "sinks/clickhouse/", "sinks/postgres/"),
        frozenset({"TableColumn"}),
        "a column of such a table",
    ),
    Shared(
        ("sinks/plugin.py", "transforms/plugin.py"),
        frozenset({"_Fixed", "_Task"}),
        "what runs a plugin in a task, for each kind of plugin",
    ),
    Shared(
        ("spark/boot/java.py", "spark/flow_table.py", "spark/micro_batch/query_run.py"),
        frozenset({"Java"}),
        "a Java; and the inner class in which Py4J looks for the interfaces of an object",
    ),
)


def test_variables_say_what_they_are() -> None:
    empty = {
        (path, name): f"{path}:{line} {name}"
        for path, tree in modules()
        for line, name in variables(tree)
        if name in SAYS_NOTHING
    }
    wrong = [place for key, place in empty.items() if key not in MAY_SAY_NOTHING]
    assert not wrong, "say what the value is, not how it was got: " + ", ".join(wrong)
    assert MAY_SAY_NOTHING.keys() <= empty.keys(), "an exception that is needed no more"


def test_every_way_to_name_a_variable_is_seen() -> None:
    text = """
def a(found, /, given, *known, whole, **kept): ...
made: int = 1
for each in (): ...
with x as said: ...
told, (held, *got) = y
try: ...
except E as one: ...
match z:
    case [*aside] | {**blame}: ...
"""
    assert {name for _, name in variables(ast.parse(text))} == SAYS_NOTHING
    for text in (
        "lambda one: 1",
        "(one := 1)",
        "[1 for one in ()]",
        "import x as one",
        "from x import y as one",
    ):
        assert [name for _, name in variables(ast.parse(text))] == ["one"], text
    for text in ("x.one", "x.one = 1", "f(one=1)", "'one'", "one"):
        assert not list(variables(ast.parse(text))), text


def test_a_class_has_its_name_alone() -> None:
    homes: dict[str, list[str]] = {}
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path)
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    reasons = {name: entry for entry in SHARED for name in entry.names}
    wrong = {
        name: places
        for name, places in shared.items()
        if name not in reasons or not is_one_in_each(places, reasons[name].homes)
    }
    assert not wrong, f"classes with one name; rename one, or give a reason in SHARED: {wrong}"
    assert reasons.keys() <= shared.keys(), f"shared no more: {reasons.keys() - shared.keys()}"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The modules of the product, by their paths."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a module gives to values, and their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=str(name), ctx=ast.Store(), lineno=line):
                yield line, name
            case ast.arg(arg=str(name), lineno=line):
                yield line, name
            case (
                ast.ExceptHandler(name=str(name), lineno=line)
                | ast.MatchAs(name=str(name), lineno=line)
                | ast.MatchStar(name=str(name), lineno=line)
            ):
                yield line, name
            case ast.MatchMapping(rest=str(name), lineno=line):
                yield line, name
            case ast.alias(asname=str(name), lineno=line):
                yield line, name


def is_one_in_each(places: list[str], homes: tuple[str, ...]) -> bool:
    """Whether each home has one of the places, and no place is elsewhere."""
    return len(places) == len(homes) and all(
        sum(place.startswith(home) for place in places) == 1 for home in homes
    )
