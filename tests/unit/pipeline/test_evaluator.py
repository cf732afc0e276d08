"""The rows of nodes in an epoch: what is computed once, what is split off, and that all steps are closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.pipeline.evaluator import EpochFrames, Evaluator
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


@dataclass
class Telling(Plain):
    """Leaves rows out."""

    told: Frame | None = None

    def separated(self, frames: Mapping[str, Any], fixed: Any) -> Any:
        return self.told


def test_what_was_given_before_stays_but_behind_a_step_that_leaves_rows_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Halves:
        """What the evaluator uses of a split."""

        def __init__(self, frame: Frame) -> None:
            self.good = Frame()

        def release(self) -> None:
            pass

    monkeypatch.setattr("penstock.pipeline.evaluator.Split", Halves)
    above, beside, below = Plain(("a",), ("s",)), Plain(("b",), ("a",)), Plain(("d",), ("c",))
    telling = Telling(("c",), ("a",))
    telling.separates = "a"
    evaluator = Evaluator([above, beside, telling, below], read=["b", "d"])
    assert evaluator.may_separate
    source = Frame()
    first = evaluator.evaluate(0, {"s": source})  # type: ignore[dict-item]
    again = evaluator.evaluate(0, {"s": source}, separates=True, before=first)  # type: ignore[dict-item]
    assert again.splits == {}
    assert again.frames == first.frames
    assert [len(step.seen) for step in (above, beside, telling, below)] == [1, 1, 1, 1]
    telling.told = Frame()
    told = evaluator.evaluate(0, {"s": source}, separates=True, before=first)  # type: ignore[dict-item]
    assert told.splits.keys() == {"c"}
    assert [len(step.seen) for step in (above, beside, telling, below)] == [1, 1, 2, 2]
    assert telling.seen[1]["a"] is told.splits["c"].good
    assert told.frames["b"] is first.frames["b"]
    for frames in (told, again, first):
        frames.release()


def test_a_result_of_the_caller_has_what_was_given_before_an_error() -> None:
    evaluator = Evaluator([Plain(("a",), ("s",)), Plain(("b",), ("a",), fails=True)], read=["a", "b"])
    result = EpochFrames()
    with pytest.raises(ValueError, match="no"):
        evaluator.evaluate(0, {"s": Frame()}, result=result)  # type: ignore[dict-item]
    assert result.outputs.keys() == {"a"}
    assert [frame.persists for frame in result.persisted] == [1]  # type: ignore[attr-defined]
    result.release()
