from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli import main as cli
from penstock.errors import ConfigError, ConnectorError, DataError, QueryTimeout, SqlError


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in cli.COMMANDS)
    assert "Examples:" in shown


def test_no_command_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docter"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: unknown command 'docter'\n  hint: did you mean 'doctor'?")


def test_debug_may_stand_anywhere_and_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nothing", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_debug_shows_no_secret_of_what_the_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    cli.hide_from_traces(lambda text: text.replace("hunter2", "***"))
    error = ConnectorError("no access")
    error.__cause__ = ValueError("no access with hunter2")
    cli.show(error, debug=True)
    said = capsys.readouterr().err
    assert "no access with ***" in said
    assert "hunter2" not in said


def test_a_command_hides_nothing_that_another_one_did(capsys: pytest.CaptureFixture[str]) -> None:
    cli.hide_from_traces(lambda text: "***")
    assert cli.main(["nothing", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (SqlError("x"), 2),
        (DataError("x"), 1),
        (ConnectorError("x"), 1),
        (QueryTimeout("x"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.show(error) == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_unexpected_error_names_debug(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show(KeyError("lost"))
    assert capsys.readouterr().err.startswith("error: KeyError: 'lost'\n  hint: ")


HEAVY = ("pyspark", "pandas", "pyarrow", "numpy", "polars", "rich", "prompt_toolkit", "sqlalchemy")


def _imported(*words: str) -> set[str]:
    """The heavy packages that a run of the command imported."""
    script = (
        "import sys; from penstock.cli.main import main; code = main(sys.argv[1:]);"
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.split())


def test_help_imports_nothing_heavy_and_not_even_typer() -> None:
    assert _imported("--help") == set()


def test_the_list_of_connectors_imports_nothing_heavy() -> None:
    assert _imported("connectors", "list") == set()


def test_the_help_of_sql_imports_nothing_heavy() -> None:
    assert _imported("sql", "--help") == set()


def test_the_help_of_jobs_imports_no_database() -> None:
    assert _imported("jobs", "stop", "--help") == set()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert cli.COMMANDS[name].help in shown
    if "Commands:" not in shown:
        assert "Examples:" in shown
    assert f"penstock {name}" in shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_reference_names_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    cli.main([name, "--help"])
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert options
    assert f"## `penstock {name}`" in page
    assert [
        option
        for option in sorted(options)
        if f"`{option}`" not in page and f"`{option}," not in page and f"`{option} " not in page
    ] == []


def test_an_unknown_option_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--outptu", "json"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: no such option")
    assert "penstock doctor --help" in shown


def test_a_query_without_quotes_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "SELECT", "1"]) == 2
    assert "needs quotes" in capsys.readouterr().err
