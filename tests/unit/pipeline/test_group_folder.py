"""The folders of groups: which state is there, which is left over, and what a reset deletes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.pipeline.group_folder import GroupFolder


def test_no_two_groups_share_a_folder(tmp_path: Path) -> None:
    assert GroupFolder.of(tmp_path, "").path != GroupFolder.of(tmp_path, "main").path


def test_a_group_has_begun_when_it_has_a_checkpoint(tmp_path: Path) -> None:
    folder = GroupFolder.of(tmp_path, "")
    assert not folder.has_begun
    history = folder.checkpoint("history")
    history.mkdir(parents=True)
    assert not folder.has_begun
    (history / "metadata").touch()
    assert folder.has_begun


def test_views_of_levels_that_are_no_more(tmp_path: Path) -> None:
    folder = GroupFolder.of(tmp_path, "")
    for level in (1, 2, 10):
        folder.views(level).mkdir(parents=True)
    assert folder.views_beside([1]) == [folder.views(10), folder.views(2)]


def test_only_what_belongs_to_it_is_removed(tmp_path: Path) -> None:
    folder = GroupFolder.of(tmp_path, "orders")
    assert not folder.remove()
    folder.checkpoint().mkdir(parents=True)
    folder.source("orders").mkdir(parents=True)
    other = folder.path / "letter.txt"
    other.touch()
    with pytest.raises(StateError, match=r"other things too: letter\.txt"):
        folder.remove()
    assert folder.checkpoint().exists()
    other.unlink()
    assert folder.remove()
    assert not folder.path.exists()
