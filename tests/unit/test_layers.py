"""Imports point one way: a package imports only from its own layer's files or from lower layers."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# The top-level name under penstock/ -> its layer. A new package needs a line here and in CONTRIBUTING.
LAYERS = {
    "errors": 0,
    "registry": 0,
    "config": 0,
    "backend": 1,
    "data": 1,
    "options": 2,
    "plugin": 3,
    "plan": 2,
    "state": 2,
    "functions": 2,
    "sql": 2,
    "operators": 3,
    "circuit": 4,
    "sources": 5,
    "sinks": 5,
    "spark": 5,
    "streaming": 6,
    "engine": 6,
    "governance": 7,
    "pattern": 7,
    "pipeline": 7,
    "__main__": 9,
    "cli": 8,
    "server": 8,
    "testing": 8,
}
MAY_IMPORT_PYSPARK = {"spark", "sources", "sinks"}
SLOW_AT_THE_TOP = {"pyspark", "pandas", "polars", "prompt_toolkit", "moto", "psycopg"}


def _imports(path: Path) -> list[tuple[str, bool, bool]]:
    """All imports of a file: (module, at the top level, only for type checking)."""
    found: list[tuple[str, bool, bool]] = []

    def visit(node: ast.AST, top: bool, typing_only: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, top, typing_only) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                module = child.module or ""
                if module == "penstock":
                    found.extend((f"penstock.{alias.name}", top, typing_only) for alias in child.names)
                else:
                    found.append((module, top, typing_only))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                visit(child, top, True)
            else:
                nested = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                visit(child, top and not nested, typing_only)

    visit(ast.parse(path.read_text(encoding="utf-8")), True, False)
    return found


def _unit(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(path for path in SOURCE.rglob("*.py") if _unit(path) != "__init__")


def test_every_package_has_a_layer() -> None:
    assert {_unit(path) for path in FILES} <= LAYERS.keys()


def test_imports_point_down() -> None:
    wrong = []
    for path in FILES:
        here = _unit(path)
        for module, _, _ in _imports(path):
            parts = module.split(".")
            if parts[0] != "penstock" or len(parts) == 1:
                continue
            there = parts[1]
            if there == "__version__":
                continue
            if there != here and LAYERS[there] >= LAYERS[here] and not _same_layer_allowed(here, there):
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert wrong == []


def _same_layer_allowed(here: str, there: str) -> bool:
    return LAYERS[here] == LAYERS[there] == 0 or (here, there) in {
        ("sources", "spark"),
        ("sinks", "spark"),
        ("engine", "streaming"),
        ("functions", "plan"),
        ("functions", "state"),  # aggregates keep their accumulators and ordered values by slot
    }


def test_only_the_spark_packages_import_pyspark() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in FILES
        for module, _, typing_only in _imports(path)
        if module.split(".")[0] in {"pyspark", "py4j"}
        and not typing_only
        and _unit(path) not in MAY_IMPORT_PYSPARK
    ]
    assert wrong == []


def test_nothing_heavy_is_imported_at_the_top() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module} at the top"
        for path in FILES
        for module, top, typing_only in _imports(path)
        if top and not typing_only and module.split(".")[0] in SLOW_AT_THE_TOP
    ]
    assert wrong == []
