"""Whose state a pipeline goes on with: a file that was moved, and another one of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.backend import Backend, Job, Start, open_backend, this_process
from penstock.errors import ConfigError
from penstock.pipeline.group_folder import FOLDER
from penstock.pipeline.group_name import GROUP, earlier_groups
from penstock.pipeline.load import load
from penstock.pipeline.owner import other_file, refuse_other_file
from penstock.pipeline.spec import STDIN

TEXT = "sources: {a: {type: rate}}\nsinks: {b: {type: print, from: a}}\n"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        yield backend


def write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def ran(
    backend: Backend,
    file: Path,
    *,
    name: str = "pipeline",
    group: str = "",
    host: str | None = None,
    folder: Path | None = None,
) -> None:
    """Record that a file has run."""
    owner = this_process("s") if host is None else replace(this_process("s"), host=host)
    job = f"{name}/{group}" if group else name
    lease = backend.leases.acquire(job, owner)
    start = Start(("penstock", "run"), str(file.parent), str(file.absolute()), again="request")
    definition = {GROUP: group} if folder is None else {GROUP: group, FOLDER: str(folder)}
    backend.jobs.record(Job(job, kind="pipeline", definition=definition, start=start), lease)
    backend.leases.release(lease)


def other(backend: Backend, file: Path) -> Path | None:
    spec = load(file, environ={})
    return other_file(spec, earlier_groups(spec.name, backend).values())


def test_a_second_file_of_the_same_name_is_refused(backend: Backend, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "pipeline.yaml"), write(tmp_path / "b" / "pipeline.yaml")
    assert other(backend, first) is None
    ran(backend, first)
    assert other(backend, first) is None
    spec = load(second, environ={})
    with pytest.raises(ConfigError) as caught:
        refuse_other_file(spec, earlier_groups("pipeline", backend).values())
    assert caught.value.code == "PIPELINE_OTHER_FILE"
    assert f"the pipeline in {first}" in caught.value.message
    assert f"penstock run {second} --moved" in (caught.value.hint or "")
    # The one that ran last counts.
    ran(backend, second)
    assert other(backend, second) is None
    assert other(backend, first) == second


def test_a_file_that_was_moved_or_renamed_goes_on(backend: Backend, tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "shop.yaml", f"name: orders\n{TEXT}")
    ran(backend, first, name="orders")
    (tmp_path / "b").mkdir()
    assert other(backend, first.rename(tmp_path / "b" / "orders-of-the-shop.yaml")) is None


def test_a_state_that_was_reset_is_nobodys(backend: Backend, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "pipeline.yaml"), write(tmp_path / "b" / "pipeline.yaml")
    ran(backend, first, folder=tmp_path / "state")
    assert other(backend, second) is None
    write(tmp_path / "state" / "checkpoint" / "metadata", "{}")
    assert other(backend, second) == first


def test_links_are_the_same_file(backend: Backend, tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "pipeline.yaml")
    (tmp_path / "current").symlink_to(tmp_path / "a")
    ran(backend, tmp_path / "current" / "pipeline.yaml")
    assert other(backend, first) is None
    # The link leads to another release now.
    second = write(tmp_path / "b" / "pipeline.yaml")
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(tmp_path / "b")
    assert other(backend, tmp_path / "current" / "pipeline.yaml") is None
    assert other(backend, second) is None


@pytest.mark.parametrize(
    "text",
    [f"name: other\n{TEXT}", f"name: ${{OTHER}}\n{TEXT}", "- a list", "{", "notes: none", "name: pipeline"],
)
def test_a_file_that_has_given_up_the_name(
    backend: Backend, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", "other")
    first, second = write(tmp_path / "a" / "pipeline.yaml"), write(tmp_path / "b" / "pipeline.yaml")
    ran(backend, first)
    first.write_text(text)
    assert other(backend, second) is None


def test_names_that_come_from_variables_are_compared(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME", "pipeline")
    first = write(tmp_path / "a" / "one.yaml", f"name: ${{NAME}}\n{TEXT}")
    second = write(tmp_path / "b" / "pipeline.yaml")
    ran(backend, first, group="a")
    assert other(backend, second) == first


def test_what_nobody_can_see_from_here_is_not_in_the_way(backend: Backend, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "pipeline.yaml"), write(tmp_path / "b" / "pipeline.yaml")
    ran(backend, first, host="elsewhere")
    assert other(backend, second) is None
    ran(backend, first)
    spec = replace(load(second, environ={}), path=STDIN)
    assert other_file(spec, earlier_groups("pipeline", backend).values()) is None
