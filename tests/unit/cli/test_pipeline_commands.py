"""`penstock validate`, `echo`, `graph`, `schema` and `init`."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import config
from penstock.cli.main import main
from penstock.errors import ConfigError, DataError
from penstock.pipeline.nodes import SINK_NODES, SOURCE_NODES
from penstock.pipeline.run import state_folder
from penstock.pipeline.spec import STDIN
from penstock.pipeline.starter import SINKS, SOURCES, TRANSFORMS, starter
from penstock.pipeline.yaml_tree import parse
from pipeline_text import check, check_text

GOOD = """\
name: shop
sources: {ticks: {type: rate}}
transforms: {even: {type: sql, sql: SELECT * FROM ticks WHERE value % 2 = 0}}
sinks: {out: {type: print, from: even}}
"""
WRONG = GOOD.replace("rate", "rat").replace("from: even", "from: evn")
UNUSED = GOOD.replace("from: even", "from: ticks")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, text in {"good": GOOD, "wrong": WRONG, "unused": UNUSED}.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")


def test_validate_says_what_a_right_pipeline_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "good.yaml"]) == 0
    assert capsys.readouterr().out == "good.yaml: valid, 1 source, 1 transform, 1 sink\n"


def test_validate_shows_all_mistakes_of_all_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "wrong.yaml", "good.yaml", "nothing.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "good.yaml: valid, 1 source, 1 transform, 1 sink\n"
    assert "2 mistakes in 'wrong.yaml'" in err
    assert "wrong.yaml:2:25: the source 'ticks': unknown source 'rat'" in err
    assert "did you mean 'even'?" in err
    assert "no file 'nothing.yaml'" in err


def test_validate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["validate", "wrong.yaml", "unused.yaml", "good.yaml", "nothing.yaml", "--output", "json"]) == 2
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["file"], row["line"], row["column"], row["severity"]) for row in rows] == [
        ("wrong.yaml", 2, 25, "error"),
        ("wrong.yaml", 4, 34, "error"),
        ("unused.yaml", 3, 14, "warning"),
        ("nothing.yaml", None, None, "error"),
    ]
    assert all(row["hint"] and row["code"].startswith("PIPELINE") for row in rows)


def test_warnings_are_mistakes_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "unused.yaml"]) == 0
    assert "warning: nothing reads the transform 'even'\n  at: unused.yaml:3:14" in capsys.readouterr().err
    assert main(["validate", "unused.yaml", "--strict"]) == 2


@pytest.mark.parametrize(
    "command",
    ["validate", "echo", "graph", "run", "dry-run", "plan", "preview", "test", "replay"],
)
def test_commands_read_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))
    assert main([command, "-"]) == 2
    assert "stdin:2:25" in capsys.readouterr().err


def test_warnings_look_alike(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for command in ("echo", "test"):
        assert main([command, "unused.yaml"]) == 0
        shown.append([line for line in capsys.readouterr().err.splitlines() if "no tests" not in line])
    assert shown[0] == shown[1] != []


@pytest.mark.parametrize("form", ["csv", "arrow", "table"])
def test_outcomes_of_tests_are_no_rows(capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert main(["test", "good.yaml", "--output", form]) == 2
    assert "'text', 'json'" in capsys.readouterr().err


def test_a_pipeline_from_stdin_that_keeps_state_has_a_name() -> None:
    session: Any = SimpleNamespace(settings=config.load())
    for text, name in ((GOOD.replace("name: shop\n", ""), None), (GOOD, "shop")):
        spec = check_text(text, STDIN).spec
        if name is None:
            with pytest.raises(ConfigError, match="needs a name") as raised:
                state_folder(session, spec)
            assert raised.value.code == "PIPELINE_NAME"
        else:
            assert state_folder(session, spec).name == name


def test_validate_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 2
    assert "penstock validate pipeline.yaml" in capsys.readouterr().err


def test_validate_imports_nothing_slow() -> None:
    script = (
        "import sys; from penstock.cli.main import main; code = main(['validate', 'good.yaml']);"
        "slow = {'pyspark', 'pyarrow', 'numpy', 'pandas', 'polars', 'sqlalchemy', 'rich'} & sys.modules.keys();"
        "sys.exit(code or str(slow) if slow else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_test_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    tests = "tests: [{name: even ones stay, expect: {out: []}}]\n"
    Path("good.yaml").write_text(GOOD + tests, encoding="utf-8")
    assert main(["test", "good.yaml", "--only", "evn ones"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no test of good.yaml has 'evn ones' in its name" in err
    assert "even ones stay" in err


def test_commands_that_run_read_stdin_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(UNUSED.encode())))
    assert main(["test", "-"]) == 0
    err = capsys.readouterr().err
    assert "stdin has no tests" in err
    assert "warning: nothing reads the transform 'even'\n  at: stdin:3:14" in err


def test_echo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo", "unused.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("name: shop\nsources:\n  ticks:\n    type: rate\n    rows_per_second: 1\n")
    assert "warning: nothing reads" in err
    assert main(["echo", "good.yaml", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sinks"]["out"]["from"] == "even"
    assert main(["echo", "wrong.yaml"]) == 2
    assert capsys.readouterr().out == ""


def test_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "good.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "even   transform sql  <- ticks"
    assert main(["graph", "good.yaml", "-o", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")
    assert main(["graph", "good.yaml", "-o", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["reads"] for row in rows] == [[], ["ticks"], ["even"]]
    assert main(["graph", "wrong.yaml"]) == 2


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["sources", "sinks"]


def test_there_is_a_starter_for_every_type() -> None:
    assert (SOURCES.keys(), SINKS.keys()) == (SOURCE_NODES.builtin.keys(), SINK_NODES.builtin.keys())


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        *((source, "print") for source in SOURCES),
        *((source, sink) for source in ("file", "rate") for sink in SINKS),
    ],
)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_starter_is_right(source: str, transform: str, sink: str) -> None:
    for path, text in starter(
        "007", source=source, transform=transform, sink=sink, path="a b/p.yaml", data="a b/data"
    ).items():
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    result = check("a b/p.yaml", environ={})
    assert [str(problem) for problem in result.problems] == []
    assert result.spec.name == "007"
    assert parse(Path("a b/p.yaml").read_text(encoding="utf-8"), "p.yaml")[1] == []


def test_init_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["init", "orders", "--sink", "file", "--folder", "new"]) == 0
    out, err = capsys.readouterr()
    assert out == "new/orders.yaml\nnew/orders-data/orders.csv\n"
    assert "penstock run new/orders.yaml" in err
    assert main(["validate", "new/orders.yaml"]) == 0
    before = Path("new/orders.yaml").read_bytes()
    assert main(["init", "orders", "--source", "rate", "--folder", "new"]) == 2
    assert "'new/orders.yaml' is there already" in capsys.readouterr().err
    assert Path("new/orders.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a/b"], "cannot be the name"),
        (["x", "--source", "fil"], "did you mean 'file'?"),
        (["x", "--transform", "sq"], "did you mean 'sql'?"),
        (["x", "--sink", "prin"], "did you mean 'print'?"),
        (["x", "--folder", "good.yaml"], "cannot write"),
    ],
)
def test_init_refuses(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    before = sorted(Path().rglob("*"))
    assert main(["init", *words, "--yes"]) == 2
    assert said in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


def test_init_writes_the_package_of_a_plugin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--plugin", "weather-station", "--kind", "transform"]) == 0
    written = capsys.readouterr().out.split()
    assert "penstock-weather-station/pyproject.toml" in written
    assert all(Path(path).is_file() for path in written)
    assert main(["init", "--plugin", "weather-station", "--kind", "transform"]) == 2
    assert main(["init", "--plugin", "other", "--kind", "sinks"]) == 2
    assert "did you mean" in capsys.readouterr().err.lower()
    assert main(["init", "orders", "--plugin", "other"]) == 2
    assert main(["init", "--kind", "sink"]) == 2


def test_init_asks_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "init", "--transform", "view"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = ""
    try:
        # A wrong answer is asked again.
        answers = [
            ("Name", "a/b"),
            ("Name", "clicks"),
            ("Source [", "rat"),
            ("Source [", "rate"),
            ("Sink [", ""),
        ]
        for question, answer in answers:
            shown = _read_until(ours, shown, question)
            os.write(ours, f"{answer}\n".encode())
        _read_until(ours, shown, "next: penstock validate clicks.yaml")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "type: rate" in Path("clicks.yaml").read_text(encoding="utf-8")
    assert check("clicks.yaml", environ={}).spec.name == "clicks"


def _read_until(terminal: int, shown: str, words: str) -> str:
    """Read what a terminal shows until the words are there, and return what follows them."""
    end = time.monotonic() + 60
    while words not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode()
    return shown.partition(words)[2]


def test_debug_hides_what_variables_of_the_pipeline_gave(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DataError("it fails") from ValueError("no access with Hunter2-word")

    monkeypatch.setenv("WORD", "hunter2-word")
    monkeypatch.setattr("penstock.cli.commands.preview.pipeline_session", fail)
    Path("word.yaml").write_text(GOOD.replace("name: shop", 'description: "${WORD}"'), encoding="utf-8")
    assert main(["preview", "word.yaml", "--debug"]) == 1
    said = capsys.readouterr().err
    assert "no access with ***" in said
    assert "unter2" not in said
