"""Dead letters that go through a pipeline again: once, through its views too, whether it runs or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.backend import Backend
from penstock.cli.main import main
from penstock.errors import PenstockError
from penstock.pipeline.evaluator import Evaluator
from penstock.pipeline.pending import PendingLetters
from penstock.pipeline.replay import Request, are_done
from penstock.pipeline.run import PipelineRun, plan_pipeline
from pipeline_text import check_text
from waiting import wait_for

PIPELINE = """
name: "{name}"
checkpoint: "{folder}/state"
sources:
  orders:
    type: file
    path: "{folder}/in/*.json"
    schema: {{id: int64, customer: int64, amount: int64}}
    mode: {mode}
    primary_key: id
transforms:
  valid: {{type: expect, from: orders, expectations: {{large: {{condition: "amount >= {least}", action: quarantine}}}}}}
  totals:
    type: view
    primary_key: customer
    sql: SELECT customer, count(*) AS orders, sum(amount) AS total FROM valid GROUP BY customer
sinks:
  all: {{type: file, from: orders, path: "{folder}/all", format: json}}
  rows: {{type: file, from: valid, path: "{folder}/rows", format: json}}
  changes: {{type: file, from: totals, path: "{folder}/changes", format: json}}
"""
BOUNDED, LIVE = "{type: bounded}", "{type: continuous, poll_interval: 100ms}"


class Pipeline:
    """One pipeline in a folder, in several versions."""

    def __init__(self, session: ps.Session, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.name = f"replay {folder.name}"
        (folder / "in").mkdir()

    def feed(self, *rows: tuple[int, int, int]) -> None:
        lines = [json.dumps(dict(zip(("id", "customer", "amount"), row, strict=True))) for row in rows]
        (self.folder / "in" / f"{rows[0][0]}.json").write_text("\n".join(lines))

    def text(self, least: int, mode: str = BOUNDED) -> str:
        return PIPELINE.format(name=self.name, folder=self.folder, least=least, mode=mode)

    def file(self, least: int, mode: str = BOUNDED) -> str:
        """Of one version, for commands."""
        file = self.folder / "p.yaml"
        file.write_text(self.text(least, mode))
        return str(file)

    def planned(self, least: int, mode: str = BOUNDED) -> tuple[PipelineRun, PendingLetters]:
        spec = check_text(self.text(least, mode), "p.yaml").spec
        return PipelineRun(self.session, plan_pipeline(self.session, spec, runs=True)), PendingLetters(
            self.session, spec, None
        )

    def run(self, least: int) -> None:
        run, _ = self.planned(least)
        run.start()
        error = run.wait()
        assert error is None, error

    def rows(self, sink: str, *columns: str) -> list[tuple[Any, ...]]:
        lines = [
            line for path in self.folder.glob(f"{sink}/*.json") for line in path.read_text().splitlines()
        ]
        return sorted(tuple(json.loads(line).get(name) for name in columns) for line in lines)


@pytest.fixture
def pipeline(session: ps.Session, tmp_path: Path) -> Pipeline:
    return Pipeline(session, tmp_path)


@pytest.fixture
def command(
    session: ps.Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[str], str]]:
    """Run a command in this process, in the session of all tests; return the lines on stdout, and stderr."""

    @contextmanager
    def embedded(**options: object) -> Iterator[ps.Session]:
        yield session

    monkeypatch.setattr("penstock.cli.process.embedded", embedded)

    def run(*words: str, code: int = 0) -> tuple[list[str], str]:
        capsys.readouterr()
        got = main(list(words))
        out, err = capsys.readouterr()
        assert got == code, err
        return out.splitlines(), err

    return run


@pytest.fixture
def backend(session: ps.Session) -> Backend:
    return session.queries.backend()


def reasons(letters: PendingLetters, limit: int | None = None) -> list[tuple[Any, ...]]:
    return [(row.node, json.loads(row.row)["id"]) for row in letters.frame(limit).collect()]


def test_letters_of_a_pipeline_that_does_not_run(pipeline: Pipeline) -> None:
    pipeline.feed((1, 1, 5), (2, 1, 50), (3, 2, 7))
    _, letters = pipeline.planned(10)
    pipeline.run(10)
    assert sorted(reasons(letters)) == [("valid", 1), ("valid", 3)]

    pipeline.feed((4, 4, 400))
    run, letters = pipeline.planned(6)
    [asked] = letters.ask(run.plan).values()
    assert reasons(letters) == []
    run.replay("")
    # What fails again is a letter again, and rows that are new in the source wait for a run.
    assert reasons(letters) == [("valid", 1)]
    assert pipeline.rows("rows", "id") == [(2,), (3,)]
    assert pipeline.rows("all", "id") == [(1,), (2,), (3,)]
    assert pipeline.rows("changes", "customer", "orders", "total") == [(1, 1, 50), (2, 1, 7)]
    assert [len(request.ids) for request in asked] == [2]
    pipeline.run(6)
    assert pipeline.rows("rows", "id") == [(2,), (3,), (4,)]
    run, letters = pipeline.planned(1)
    assert len(letters.ask(run.plan, limit=1)) == 1
    pipeline.run(1)  # a run takes what was asked for, too
    assert pipeline.rows("changes", "customer", "orders", "total")[:2] == [(1, 1, 50), (1, 2, 55)]
    assert reasons(letters) == []


def test_letters_whose_epoch_comes_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.feed((1, 1, 5), (2, 1, 50))
    pipeline.run(10)
    run, letters = pipeline.planned(1)
    letters.ask(run.plan)
    commit = Evaluator.commit

    def killed(self: Evaluator, epoch: int) -> None:
        raise RuntimeError("killed when all sinks had the epoch")

    monkeypatch.setattr(Evaluator, "commit", killed)
    with pytest.raises(PenstockError, match="killed"):
        run.replay("")
    monkeypatch.setattr(Evaluator, "commit", commit)
    pipeline.feed((3, 3, 30))
    run, letters = pipeline.planned(1)
    [asked] = letters.ask(run.plan).values()
    run.replay("")
    assert pipeline.rows("rows", "id") == [(1,), (2,)]
    pipeline.run(1)
    assert pipeline.rows("rows", "id") == [(1,), (2,), (3,)]
    assert pipeline.rows("changes", "customer", "orders") == [(1, 1), (1, 2), (3, 1)]
    assert reasons(letters) == []
    assert len(asked) == 1


def test_letters_while_the_pipeline_runs(pipeline: Pipeline, backend: Backend) -> None:
    pipeline.feed((1, 1, 5), (2, 1, 50))
    pipeline.run(10)
    run, letters = pipeline.planned(1, LIVE)
    run.start()
    try:
        pipeline.feed((3, 1, 30))
        wait_for(lambda: pipeline.rows("rows", "id") == [(2,), (3,)], "the new row")
        asked: list[Request] = letters.ask(run.plan)[""]
        backend.jobs.request(pipeline.name, "restart")
        wait_for(lambda: are_done(backend, backend.jobs.get(pipeline.name), asked), "the epoch with letters")
        assert pipeline.rows("rows", "id") == [(1,), (2,), (3,)]
        pipeline.feed((4, 4, 40))
        wait_for(lambda: (4,) in pipeline.rows("rows", "id"), "a row behind the letters")
    finally:
        run.stop()
    assert pipeline.rows("changes", "customer", "orders") == [(1, 1), (1, 2), (1, 3), (4, 1)]
    assert backend.state.items(pipeline.name, namespace="replay").keys() == {
        ("replay", "replayed"),
        ("replay", "replayed-0"),
    }


def test_the_command_lists_letters_and_does_their_epoch(
    pipeline: Pipeline, command: Callable[..., tuple[list[str], str]]
) -> None:
    pipeline.feed((1, 1, 5), (2, 1, 50), (3, 2, 7))
    file = pipeline.file(10)
    command("run", file)
    listed, said = command("replay", file, "--list", "--output", "json")
    assert sorted(json.loads(json.loads(line)["row"])["id"] for line in listed) == [1, 3]
    assert said == f"2 dead letters of '{pipeline.name}'\n"
    listed, said = command("replay", file, "--list", "--limit", "1", "--node", "valid", "--output", "csv")
    assert (listed[0], len(listed)) == ("node,reason,row,at", 2)
    assert "did you mean 'valid'?" in command("replay", file, "--node", "valit", code=2)[1]
    # After the repair one of them is right.
    assert command("replay", pipeline.file(6)) == ([], "replayed 2 dead letters; 1 waits now\n")
    assert pipeline.rows("rows", "id") == [(2,), (3,)]
    assert command("replay", pipeline.file(1), "--limit", "1")[1] == "replayed 1 dead letter; none wait now\n"
    assert pipeline.rows("rows", "id") == [(1,), (2,), (3,)]
    assert command("replay", file)[1] == f"no dead letters of '{pipeline.name}' wait\n"


def test_the_command_lets_a_running_pipeline_take_letters(
    pipeline: Pipeline, backend: Backend, command: Callable[..., tuple[list[str], str]]
) -> None:
    pipeline.feed((1, 1, 5), (2, 1, 50))
    pipeline.run(10)
    run, _ = pipeline.planned(1, LIVE)
    file = pipeline.file(1, LIVE)
    run.start()
    try:
        command("jobs", "pause", pipeline.name, "--state", backend.url)
        assert f"'{pipeline.name}' is paused" in command("replay", file, code=1)[1]
        command("jobs", "resume", pipeline.name, "--state", backend.url)
        before = backend.jobs.get(pipeline.name).start
        assert command("replay", file)[1] == "replayed 1 dead letter; none wait now\n"
        assert pipeline.rows("rows", "id") == [(1,), (2,)]
        assert backend.jobs.get(pipeline.name).start == before
        pipeline.feed((3, 3, 30))
        wait_for(lambda: (3,) in pipeline.rows("rows", "id"), "a row behind the letters")
    finally:
        run.stop()
    assert pipeline.rows("changes", "customer", "orders") == [(1, 1), (1, 2), (3, 1)]
