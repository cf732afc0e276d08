"""The rows of nodes in an epoch: what is computed once, what is split off, and that all steps are closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.pipeline.evaluator import Evaluator
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.step import Step


@dataclass
class Frame:
    """What the evaluator uses of a DataFrame."""

    columns: tuple[str, ...] = ("id",)
    persists: int = 0

    def persist(self) -> Frame:
        self.persists += 1
        return self

    def unpersist(self) -> None:
        self.persists -= 1


@dataclass
class Plain(Step):
    """Gives a frame per node."""

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    reads_now: bool = False
    fails: bool = False
    closed: int = 0
    seen: list[Mapping[str, Any]] = field(default_factory=list)

    def outputs(self) -> Mapping[str, NodeOutput]:
        raise AssertionError("only planning asks")

    def evaluate(self, epoch: int, frames: Mapping[str, Any]) -> Mapping[str, Any]:
        self.seen.append({name: frames[name] for name in self.inputs})
        if self.fails:
            raise ValueError("no")
        return {name: Frame() for name in self.nodes}

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise ValueError("cannot close")


def test_what_is_read_once_is_not_persisted() -> None:
    evaluator = Evaluator([Plain(("a",), ("s",)), Plain(("b",), ("a",))], read=["b"])
    epoch = evaluator.evaluate(0, {"s": Frame()})  # type: ignore[dict-item]
    assert epoch.persisted == []


def test_a_node_with_two_readers_is_persisted_and_what_is_above_it_is_not() -> None:
    evaluator = Evaluator([Plain(("a",), ("s",)), Plain(("b",), ("a",))], read=["b", "b"])
    epoch = evaluator.evaluate(0, {"s": Frame()})  # type: ignore[dict-item]
    assert epoch.persisted == [epoch.frames["b"]]


def test_a_source_with_two_readers_is_persisted() -> None:
    evaluator = Evaluator([Plain(("a",), ("s",)), Plain(("b",), ("s",))], read=["a", "b"])
    source = Frame()
    epoch = evaluator.evaluate(0, {"s": source})  # type: ignore[dict-item]
    assert epoch.persisted == [source]
    epoch.release()
    assert source.persists == 0


def test_a_step_that_reads_at_once_counts_as_a_reader_and_its_rows_are_there_already() -> None:
    steps = [Plain(("v", "w"), ("s",), reads_now=True), Plain(("a",), ("s",))]
    epoch = Evaluator(steps, read=["v", "v", "a"]).evaluate(0, {"s": Frame()})  # type: ignore[dict-item]
    assert epoch.persisted == [epoch.frames["s"]]


def test_a_node_that_nobody_reads_does_not_make_its_input_shared() -> None:
    steps = [Plain(("unused",), ("s",)), Plain(("a",), ("s",))]
    epoch = Evaluator(steps, read=["a"]).evaluate(0, {"s": Frame()})  # type: ignore[dict-item]
    assert epoch.persisted == []


def test_an_error_releases_what_was_persisted() -> None:
    steps = [Plain(("a",), ("s",)), Plain(("b",), ("s",), fails=True)]
    source = Frame()
    with pytest.raises(ValueError, match="no"):
        Evaluator(steps, read=["a", "b"]).evaluate(0, {"s": source})  # type: ignore[dict-item]
    assert source.persists == 0


def test_all_steps_are_closed_and_the_first_error_is_raised() -> None:
    steps = [Plain(("a",), ("s",)), Plain(("b",), ("s",), fails=True)]
    with pytest.raises(ValueError, match="cannot close"):
        Evaluator(steps, read=[]).close()
    assert [step.closed for step in steps] == [1, 1]
