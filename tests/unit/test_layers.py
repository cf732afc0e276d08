"""Imports point one way: down between packages, and without a ring inside a package."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# The top-level names under penstock/, lowest first. One may import those above it in this list, and no other.
# A new package needs its place here and in CONTRIBUTING.
LAYERS = (
    "errors",
    "registry",
    "config",
    "data",
    "backend",
    "options",
    "plugin",
    "plan",
    "sql",
    "state",
    "functions",
    "operators",
    "circuit",
    "spark",
    "sources",
    "sinks",
    "transforms",
    "streaming",
    "engine",
    "governance",
    "pattern",
    "pipeline",
    "server",
    "testing",
    "cli",
    "__main__",
)
MAY_USE_PYSPARK = {"spark", "sources", "sinks", "transforms"}
SLOW_AT_THE_TOP = {"pyspark", "pandas", "polars", "prompt_toolkit", "moto", "psycopg"}
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # which Python made public under such names
USES_THE_ENVIRONMENT = {
    "spark/daemon.py": "whether its workers are those of shards, which only Spark can tell it",
    "config.py": "reads every setting, and is the only module that does",
    "spark/boot/pyspark_session.py": "writes PYSPARK_PYTHON, which PySpark takes from nowhere else",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file; `top` says that it runs with the file, `typing_only` that it never runs."""

    module: str
    top: bool
    typing_only: bool


def _unit(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(path for path in SOURCE.rglob("*.py") if _unit(path) != "__init__")


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _module(path: Path) -> str:
    parts = ("penstock", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {_module(path): path for path in FILES}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> list[Import]:
    """All imports of a file, those inside functions and for type checking too."""
    imports: list[Import] = []

    def visit(node: ast.AST, top: bool, typing_only: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                imports.extend(Import(alias.name, top, typing_only) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                imports.extend(Import(name, top, typing_only) for name in _imported(child))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                visit(child, top, True)
            else:
                nested = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                visit(child, top and not nested, typing_only)

    visit(_tree(path), True, False)
    return imports


def _imported(statement: ast.ImportFrom) -> list[str]:
    """The modules that `from x import y` names: `x.y` where that is a module, else `x`."""
    module = statement.module or ""
    if module == "penstock":
        return [f"penstock.{alias.name}" for alias in statement.names]
    names = (f"{module}.{alias.name}" for alias in statement.names)
    return list(dict.fromkeys(name if name in MODULES else module for name in names))


def test_every_package_has_a_layer() -> None:
    assert {_unit(path) for path in FILES} <= set(LAYERS)


def test_imports_point_down() -> None:
    wrong = []
    for path in FILES:
        here = LAYERS.index(_unit(path))
        for module in (imported.module for imported in _imports(path)):
            package, _, rest = module.partition(".")
            there = rest.partition(".")[0]
            if package == "penstock" and there not in {"", "__version__"} and LAYERS.index(there) > here:
                wrong.append(f"{_name(path)} imports {module}")
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and for type checking count: what needs them is one concept in two files."""
    rings = set(_rings({module: _neighbours(module) for module in MODULES}))
    assert rings == set()


def _neighbours(module: str) -> set[str]:
    """The modules that one imports; importing `a.b.c` does not count as importing the package `a.b`."""
    return {imported.module for imported in _imports(MODULES[module])} & MODULES.keys() - {module}


def _rings(graph: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Give the groups of modules in which each reaches each other."""
    reach = {module: _reachable(graph, module) for module in graph}
    ringed = {module for module in graph if module in reach[module]}
    for module in sorted(ringed):
        ring = tuple(sorted(other for other in ringed & reach[module] if module in reach[other]))
        if module == ring[0]:
            yield ring


def test_rings_are_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e", "a"}}
    assert list(_rings(graph)) == [("a", "b", "c"), ("e", "f")]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = graph[waiting.pop()] - seen
        seen |= fresh
        waiting.extend(fresh)
    return seen


def test_only_the_spark_packages_import_pyspark() -> None:
    wrong = [
        f"{_name(path)} imports {imported.module}"
        for path in FILES
        for imported in _imports(path)
        if imported.module.split(".")[0] in {"pyspark", "py4j"}
        and not imported.typing_only
        and _unit(path) not in MAY_USE_PYSPARK
    ]
    assert wrong == []


def test_only_the_spark_packages_reach_into_pyspark() -> None:
    """PySpark's private members begin with `_j`; our own ones are used through `self` alone."""
    users = {
        f"{_name(path)} uses {node.attr}"
        for path in FILES
        if _unit(path) not in MAY_USE_PYSPARK
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_j")
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    assert users == set()


def test_private_members_stay_in_the_module_of_their_class() -> None:
    """Who needs them is given what he needs, or they are public."""
    members = {path: set(_private_members(_tree(path))) for path in FILES}
    ours = set().union(*members.values()) - NAMED_TUPLES
    users = {
        f"{_name(path)}:{line} uses {used}"
        for path in FILES
        for line, used in _private_uses(_tree(path), ours - members[path])
    }
    assert users == set()


def _private_members(tree: ast.AST) -> Iterator[str]:
    """The members that classes of a module have for themselves: their attributes and methods that begin with one `_`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_own(node.value):
            yield from _if_private(node.attr)
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _if_private(statement.name)
                elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield from _if_private(statement.target.id)


def _private_uses(tree: ast.AST, members: Set[str]) -> Iterator[tuple[int, str]]:
    """Where a module uses some members through anything but `self`, `cls` and `super()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in members and not _is_own(node.value):
            yield node.lineno, ast.unparse(node)


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _if_private(name: str) -> Iterator[str]:
    if name.startswith("_") and not name.startswith("__"):
        yield name


def test_private_members_are_seen() -> None:
    flow = ast.parse(
        "class Flow:\n _kernel: Kernel\n def __init__(self): self._lock = 1\n def _step(self): cls._all"
    )
    members = set(_private_members(flow))
    assert members == {"_kernel", "_lock", "_step", "_all"}
    stranger = ast.parse("self._lock\nsuper()._step()\nflow._lock\nself._flow._step()\nflow._jvm")
    assert list(_private_uses(stranger, members)) == [(3, "flow._lock"), (4, "self._flow._step")]


def test_only_config_reads_the_environment() -> None:
    users = {_name(path) for path in FILES for node in ast.walk(_tree(path)) if _is_environment(node)}
    assert users == USES_THE_ENVIRONMENT.keys()


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"}


def test_settings_are_read_by_sessions_and_commands_alone() -> None:
    """All others are given them, so that two sessions of one process do not see each other's."""
    readers = {_name(path) for path in FILES if any(map(_reads_settings, ast.walk(_tree(path))))}
    assert {name for name in readers if not name.startswith("cli/")} == {"engine/session.py"}


def _reads_settings(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "penstock.config" and "load" in {alias.name for alias in node.names}
    return isinstance(node, ast.Attribute) and ast.unparse(node) in {"config.load", "penstock.config.load"}


def test_readers_of_settings_are_seen() -> None:
    seen = ("config.load()", "run(config.load)", "from penstock.config import Settings, load")
    unseen = ("json.load(config)", "self.config.loaded", "from penstock.config import Settings")
    assert all(any(map(_reads_settings, ast.walk(ast.parse(text)))) for text in seen)
    assert not any(any(map(_reads_settings, ast.walk(ast.parse(text)))) for text in unseen)


def test_nothing_heavy_is_imported_at_the_top() -> None:
    wrong = [
        f"{_name(path)} imports {imported.module} at the top"
        for path in FILES
        for imported in _imports(path)
        if imported.top and not imported.typing_only and imported.module.split(".")[0] in SLOW_AT_THE_TOP
    ]
    assert wrong == []
