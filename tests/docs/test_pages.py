"""What the README and the documentation show is what happens.

Every page is run from top to bottom in a fresh folder that holds a copy of `examples/data` as `data`:
a `python` block is executed, and a `text` block right behind it is its output; in a `console` block each line after `$ `
is run by a shell, and the lines below it are its output; a `yaml` block that is a whole pipeline is validated, and is the file that a comment in its first
line names; a `diff` block changes the file in its first line, hunk by hunk, with blank lines between. `...` stands for anything, as in doctest. Behind a line that ends with `&` something runs in the background until the page ends: a
command that shows what it does is asked again for a while.
`make` targets are only checked to exist: they would run this very test. A page that speaks of a variable with the address of
a server finds that server running.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from servers.kafka import Broker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
IS_PIPELINE = re.compile(r"^sources:.*^sinks:", re.MULTILINE | re.DOTALL).search
"""Whole pipelines are validated; what stands for another tool's file is `yml`."""
FILE_NAME = re.compile(r"# (\S+\.yaml)\n")
PATIENCE = 120
"""Seconds for what runs in the background, which may have to start Spark."""
CHECK = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OUTPUT_MARK = "----- end of block -----"


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent = len(match[1])
        body = "".join(line[indent:] or "\n" for line in match[3].splitlines(keepends=True))
        found.append(Block(match[2], body, text[: match.start()].count("\n") + 1))
    return found


def _same(expected: str, got: str) -> bool:
    strip = "\n".join(line.rstrip() for line in got.strip().splitlines()) + "\n"
    want = "\n".join(line.rstrip() for line in expected.strip().splitlines()) + "\n"
    return doctest.OutputChecker().check_output(want, strip, CHECK)


def _environment(home: Path, state: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = {"PENSTOCK_HOME": str(home), "COLUMNS": "100", "NO_COLOR": "1"}
    return {**os.environ, "PATH": path, **shown, "PENSTOCK_STATE": state}


def _run_python(page: Path, found: list[Block], folder: Path, env: dict[str, str]) -> None:
    python = [block for block in found if block.kind == "python"]
    if not python:
        return
    script = "".join(
        f"exec(compile({block.text!r}, '{page.name}:{block.line}', 'exec'))\nprint({OUTPUT_MARK!r}, flush=True)\n"
        for block in python
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:penstock", "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    outputs = dict(zip((block.line for block in python), done.stdout.split(f"{OUTPUT_MARK}\n"), strict=False))
    for block, behind in pairwise(found):
        if block.kind == "python" and behind.kind == "text":
            got = outputs[block.line]
            assert _same(behind.text, got), (
                f"{page.name}:{behind.line} shows\n{behind.text}\nbut it prints\n{got}"
            )


class Shell:
    """Runs commands one by one; what they leave in the background ends with it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder, self._env = folder, env
        self._groups: list[int] = []
        self._behind = 0.0
        """Until when a command is asked again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def output(self, line: str, expected: str) -> str:
        """What a command prints; behind one in the background, when it prints what is expected or time is over."""
        if line.endswith("&"):
            self._behind = time.monotonic() + PATIENCE
        got = self._run(line)
        while not _same(expected, got) and time.monotonic() < self._behind:
            time.sleep(0.5)
            got = self._run(line)
        return got

    def _run(self, line: str) -> str:
        process = subprocess.Popen(
            line,
            shell=True,
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if line.endswith("&"):
            self._groups.append(process.pid)
        try:
            out, err = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return out + err


def _run_console(page: Path, block: Block, shell: Shell) -> None:
    for command in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = command.partition("\n")
        while not _is_whole(line):
            more, _, expected = expected.partition("\n")
            line = f"{line}\n{more}"
        if line.startswith("make "):
            subprocess.run(
                ["make", "-n", *line.split()[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60
            )
            continue
        if line.startswith(("git clone", "cd ", "pip install")):
            continue
        got = shell.output(line, expected)
        assert _same(expected, got), f"{page.name}:{block.line} shows\n{expected}\nbut `{line}` prints\n{got}"


def _change(page: Path, block: Block, folder: Path) -> None:
    """Do to a file what a reader is told to do."""
    first, _, rest = block.text.partition("\n")
    file = folder / first.removeprefix("--- ")
    text = file.read_text(encoding="utf-8")
    for hunk in rest.strip("\n").split("\n\n"):
        lines = hunk.split("\n")
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] in "- ")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] in "+ ")
        assert text.count(old) == 1, f"{page.name}:{block.line}: {file.name} has\n{text}\nand not once\n{old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def _is_whole(command: str) -> bool:
    """Whether a shell would run a command and not ask for more."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def _addresses(page: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The servers that a page speaks of, as the variables in which penstock looks for them."""
    text = page.read_text(encoding="utf-8")
    found = {}
    if any(block.kind == "python" for block in blocks(page)):
        for variable, address in ADDRESSES.items():
            if variable in text:
                found[variable] = address(request)
    return found


@pytest.fixture(scope="session")
def kafka_with_orders(kafka: Broker) -> str:
    """The address of a broker with the topic of the documentation."""
    kafka.create_topic("orders")
    return kafka.bootstrap_servers


ADDRESSES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": lambda request: request.getfixturevalue("kafka_with_orders"),
    "PENSTOCK_POSTGRES_URL": lambda request: request.getfixturevalue("postgres").new_database(),
    "PENSTOCK_CLICKHOUSE_URL": lambda request: request.getfixturevalue("clickhouse").new_database(),
}


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=_id)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copytree(ROOT / "examples" / "data", folder / "data")
    from penstock import config

    state = f"sqlite:///{tmp_path}/state.db"  # of this page alone, which lists what it has started
    env = _environment(config.load().home, state) | _addresses(page, request)
    found = blocks(page)
    _run_python(page, found, folder, env)
    with Shell(folder, env) as shell:
        for block in found:
            if block.kind == "console":
                _run_console(page, block, shell)
            elif block.kind == "yaml" and (name := FILE_NAME.match(block.text)):
                (folder / name[1]).write_text(block.text, encoding="utf-8")
            elif block.kind == "diff":
                _change(page, block, folder)


PIPELINES = [
    (page, block)
    for page in PAGES
    for block in blocks(page)
    if block.kind == "yaml" and IS_PIPELINE(block.text)
]
PLACES = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann@127.0.0.1/shop",
    "PENSTOCK_CLICKHOUSE_URL": "http://127.0.0.1:8123/shop",
}


@pytest.mark.parametrize(
    ("page", "block"), PIPELINES, ids=lambda one: _id(one) if isinstance(one, Path) else one.line
)
def test_a_pipeline_of_a_page_is_valid(page: Path, block: Block) -> None:
    from pipeline_text import check_text

    assert check_text(block.text, f"{page.name}:{block.line}", environ=PLACES).problems == ()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_warnings_of_the_documentation_are_not_silenced() -> None:
    """mkdocs does not count the warnings that it is told not to show, so that `--strict` would let a broken link pass."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndocs:")[2].partition("\n\n")[0]
    assert "mkdocs build --strict" in recipe
    assert "--quiet" not in recipe
