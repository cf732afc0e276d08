"""Imports point one way: down between packages, and without a ring inside a package."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"

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

ENGINE_USES = {
    "circuit.budget": "the memory that a flow may have",
    "circuit.compile": "what computes a fragment of a plan in Spark, which the engine hands over",
    "circuit.in_process": "makes the kernel that a saved flow in shards has here",
    "circuit.kernel": "the facade",
    "circuit.local": "makes the kernel of a flow",
    "circuit.retention": "words of an error about columns that are not kept",
    "circuit.sharded": "makes the kernel of a flow in shards",
    "circuit.state_key": "the names of states in checkpoints",
    "state.checkpoint": "the files of checkpoints",
    "state.data_file": "what a full checkpoint says of a flow",
    "state.files": "the storage of flow directories",
    "state.full_folder": "the files of full checkpoints",
    "state.limits": "bounds that users set, which a tick reads",
    "state.location": "folders and prefixes of object stores",
    "state.log": "the log of a flow directory",
    "state.object_log": "the log of a flow in an object store",
    "state.part": "what a checkpoint has of the states of shards",
    "state.scratch": "the folder of scratch files",
    "state.spine": "the rows of a batch that is being fed, by their keys",
    "state.state": "the images of states that a checkpoint gets",
}
"""Whatever else the engine needs of state, operators and circuits it gets through `circuit.kernel`."""

MODULE_STATE = {
    "cli/main.py:_hide_from_trace": "the command line runs one command at a time in its process",
    "data/hashing.py:_WORDS": "a function per type of Arrow, which is always the same",
    "data/huge_pages.py:_before": "NumPy has one switch for all threads",
    "data/huge_pages.py:_inside": "NumPy has one switch for all threads",
    "functions/scalars/zone_ids.py:_LEARNT": "the zones of the JVM of this process",
    "functions/scalars/zone_ids.py:_LINES": "the zones of the JVM of this process",
    "functions/scalars/zones.py:_RULES": "the zones of the JVM of this process",
    "sources/plugin_feed.py:_servers": "one server for an address, which tasks of Spark call",
    "spark/arrow_stream.py:_SERVERS": "one server for each JVM, forgotten with it",
    "spark/boot/gateway.py:_living": "no JVM outlives the process",
    "spark/boot/gateway.py:_started": "a fork closes the pipes of JVMs",
    "spark/boot/janino.py:_MAKERS": "constructors of classes, forgotten with their JVM",
    "spark/boot/pyspark_session.py:_ended": "PySpark itself keeps objects of a JVM that is gone in its modules",
    "spark/boot/session.py:_prepared": "PySpark has one JVM in a process",
    "spark/boot/session.py:_running": "PySpark has one JVM in a process",
    "spark/catalyst/zone_rules.py:_TABLE": "the zones of the JVM of this process",
    "spark/shards/worker.py:_LIVE": "a worker of Spark keeps its shards from one task to the next",
    "streaming/queries.py:_ALL": "the interpreter ends once for all sessions",
    "transforms/lookup/enrich.py:_WORKER": "a worker of Spark keeps its connections from one task to the next",
    "transforms/script/task.py:_processes": "a worker of Spark keeps its processes from one task to the next",
}
"""Names that a module binds or changes after it was imported. A flow, a query or a session keeps nothing there."""
CONTAINERS = {
    *("dict", "list", "set", "bytearray", "defaultdict", "OrderedDict", "deque", "Counter", "local"),
    *("WeakKeyDictionary", "WeakValueDictionary", "WeakSet"),
}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"),
    *("popleft", "remove", "setdefault", "update"),
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


def test_contributors_know_who_uses_the_environment() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert {name for name in USES_THE_ENVIRONMENT if f"`{name}`" not in text} == set()


def _is_environment(node: ast.AST) -> bool:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    if isinstance(node, ast.ImportFrom):
        return node.module in {"os", "posix"} and bool(names & {alias.name for alias in node.names})
    return isinstance(node, ast.Attribute) and node.attr in names


def test_uses_of_the_environment_are_seen() -> None:
    seen = (
        "os.environ['A']",
        "os.getenv('A')",
        "from os import environ",
        "from os import path, getenv as get",
    )
    assert all(any(map(_is_environment, ast.walk(ast.parse(text)))) for text in seen)
    assert not any(map(_is_environment, ast.walk(ast.parse("from os import path\nenviron = {}"))))


def test_the_engine_sees_the_kernel_by_its_facade() -> None:
    inside = ("circuit", "operators", "state")
    used = {
        imported.module.removeprefix("penstock.")
        for path in FILES
        if _unit(path) == "engine"
        for imported in _imports(path)
        if imported.module.removeprefix("penstock.").partition(".")[0] in inside
    }
    assert used == ENGINE_USES.keys()


def test_modules_keep_nothing_but_what_is_listed() -> None:
    kept = {f"{_name(path)}:{name}" for path in FILES for name in _module_state(_tree(path))}
    assert kept == MODULE_STATE.keys()


def _module_state(tree: ast.Module) -> set[str]:
    """The names of a module that are empty or weak containers, or that its functions bind or change."""
    values = dict(_module_values(tree))
    names = {name for name, value in values.items() if _is_empty_container(value)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Global):
                    names.update(node.names)
                elif (changed := _changed(node)) in values:
                    names.add(changed)
    return names


def _module_values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from ((name, statement.value) for name in names)


def _is_empty_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        function = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        return ast.unparse(function).rpartition(".")[2] in CONTAINERS and not value.args
    return ast.unparse(value) in {"{}", "[]"}


def _changed(node: ast.AST) -> str:
    """The name whose items a node sets, deletes or changes by a method; empty when it does not."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        container = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        container = node.func.value
    else:
        return ""
    return container.id if isinstance(container, ast.Name) else ""


def test_state_of_modules_is_seen() -> None:
    module = ast.parse(
        "from weakref import WeakKeyDictionary\n"
        "A = {}\nB: list[int] = []\nC = WeakKeyDictionary()\nD = dict[str, int]()\n"
        "E = {1: 2}\nF = [1]\nG = None\n"
        "H = {1: 2}\nI = [1]\nJ = dict(zip('ab', 'cd'))\n"
        "def f():\n global G\n E[2] = 3\n F.append(2)\n local = []\n local.append(H[1])\n return I, J"
    )
    assert _module_state(module) == {"A", "B", "C", "D", "E", "F", "G"}


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
