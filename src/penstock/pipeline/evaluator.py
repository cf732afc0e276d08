"""The rows of all nodes of a group, epoch by epoch: only here steps run, for sinks, previews and tests alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.pipeline.step import Step
from penstock.transforms.base import ERROR
from penstock.transforms.failure import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.errors import PenstockError
    from penstock.pipeline.row_counts import RowCounts
    from penstock.sinks.base import Target


@dataclass(slots=True)
class EpochFrames:
    """The rows of an epoch by node, and those that failed; what was persisted for them is released after they are written."""

    frames: dict[str, DataFrame] = field(default_factory=dict)
    splits: dict[str, Split] = field(default_factory=dict)
    """Of the nodes whose rows may fail: the good ones, and after these were written the failed ones."""
    persisted: list[DataFrame] = field(default_factory=list)
    outputs: dict[str, Mapping[str, DataFrame]] = field(default_factory=dict)
    """The rows that steps have returned, by their first node."""

    def persist(self, frame: DataFrame) -> DataFrame:
        """Compute a frame once, however often it is read."""
        frame = frame.persist()
        self.persisted.append(frame)
        return frame

    def release(self) -> None:
        """Give back the memory of what was persisted."""
        for split in self.splits.values():
            split.release()
        while self.persisted:
            self.persisted.pop().unpersist()


class Evaluator:
    """Runs steps in their order; `read` are the nodes whose rows are read from outside, each as often as it is read.

    `watched` takes the rows of a node and returns those to read instead. `counts` counts the rows that steps give.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        read: Iterable[str],
        watched: Callable[[str, DataFrame], DataFrame] = lambda name, frame: frame,
        counts: RowCounts | None = None,
    ) -> None:
        self.steps = tuple(steps)
        self._watched = watched
        self._counts = counts
        self._shared = _read_more_than_once(self.steps, tuple(read))

    def open(self, target: Target) -> None:
        """Open all steps for the query that `target` is."""
        for step in self.steps:
            step.open(target)

    def evaluate(
        self,
        epoch: int,
        rows: Mapping[str, DataFrame],
        *,
        replayed: Mapping[str, DataFrame] | None = None,
        fixed: Callable[[str, DataFrame], DataFrame] | None = None,
        separates: bool = False,
        before: EpochFrames | None = None,
        result: EpochFrames | None = None,
    ) -> EpochFrames:
        """Return the rows of all nodes; `rows` are those of the sources.

        `replayed` are rows that come into a node beside those of the node that it reads, and into no other. `fixed`
        makes of the rows of a node that depend on the time or on random values those that they were when the epoch
        came first. With `separates`, steps that take their rows together look for those that they cannot take, and
        leave them out; without, such a row fails whoever reads what they give. `before` is the result for the epoch
        without: what steps gave then is taken as it is, unless it changes by what is left out. A `result` of the
        caller's is filled and returned; then the caller releases it, also after an error, and has what steps gave
        before that.
        """
        own, result = result is None, EpochFrames() if result is None else result
        earlier = {} if before is None else before.outputs
        changed: set[str] = set()
        try:
            for name, frame in rows.items():
                self._add(result, name, frame)
            for step in self.steps:
                frames = _with_replayed(step, result.frames, replayed or {})
                stable = fixed if fixed and step.is_volatile else _as_it_is
                if separates and step.separates is not None:
                    split = self._split(result, step, frames, partial(stable, step.nodes[0]))
                    if split is not None:
                        result.splits[step.nodes[0]] = split
                        changed |= set(step.nodes)
                        frames = {**frames, step.separates: split.good}
                if changed.isdisjoint({*step.nodes, *step.inputs}) and step.nodes[0] in earlier:
                    step_frames = earlier[step.nodes[0]]
                else:
                    changed |= set(step.nodes)
                    step_frames = step.evaluate(epoch, frames)
                result.outputs[step.nodes[0]] = step_frames
                for name, frame in step_frames.items():
                    self._add(result, name, stable(name, frame))
                    if self._counts is not None:
                        result.frames[name] = self._counts.observed(name, result.frames[name])
        except BaseException:
            if own:
                result.release()
            raise
        return result

    @property
    def may_separate(self) -> bool:
        """Whether some step can look for rows that it cannot take."""
        return any(step.separates is not None for step in self.steps)

    def _split(
        self,
        result: EpochFrames,
        step: Step,
        frames: Mapping[str, DataFrame],
        fixed: Callable[[DataFrame], DataFrame],
    ) -> Split | None:
        """The rows that a step takes and those that it cannot take; None when it takes all of them."""
        name = step.separates
        assert name is not None
        separated = step.separated({**frames, name: result.persist(frames[name])}, fixed)
        return None if separated is None else Split(separated)

    def counts(self) -> dict[str, Mapping[str, int]]:
        """Return what the nodes counted in the epoch that was written last."""
        return {name: counted for step in self.steps for name, counted in step.counts().items() if counted}

    def failure(self, error: BaseException) -> PenstockError | None:
        """The error of the step that failed while rows were read, with its place; None when the error is of no step."""
        claims = [(step, own) for step in self.steps if (own := step.failure(error)) is not None]
        if not claims:
            return None
        # An error from a task may be of any of several steps: then it is of the one that it names.
        problem = claims[0][1]
        named = [step for step, _ in claims if _names(problem.where, step.nodes)] if len(claims) > 1 else []
        if len(claims) == 1 or named:
            problem.where = (named[0] if named else claims[0][0]).place or problem.where
        return problem

    def commit(self, epoch: int) -> None:
        """All sinks have written the epoch."""
        for step in self.steps:
            step.commit(epoch)

    def finalize(self, epoch: int) -> None:
        """The epoch does not come again."""
        for step in self.steps:
            step.finalize(epoch)

    def close(self) -> None:
        """Close all steps, also when one of them fails to; raises what the first one raised."""
        problem: BaseException | None = None
        for step in reversed(self.steps):
            try:
                step.close()
            except Exception as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _add(self, result: EpochFrames, name: str, frame: DataFrame) -> None:
        if ERROR in frame.columns:
            split = result.splits[name] = Split(frame, repeatable=False)
            frame = self._watched(name, split.good)
        else:
            frame = self._watched(name, frame)
            if name in self._shared:
                frame = result.persist(frame)
        result.frames[name] = frame


def _as_it_is(name: str, frame: DataFrame) -> DataFrame:
    return frame


def _with_replayed(
    step: Step, frames: dict[str, DataFrame], replayed: Mapping[str, DataFrame]
) -> Mapping[str, DataFrame]:
    """The rows that a step reads, with those that come into its node again."""
    [name, *others] = step.nodes
    if name not in replayed:
        return frames
    assert not others, "a node whose rows may fail is a step of its own"
    above = step.inputs[0]
    return {**frames, above: frames[above].unionByName(replayed[name])}


def _names(where: str | None, nodes: Sequence[str]) -> bool:
    """Whether an error is at one of these nodes, or in the file of one."""
    return where is not None and any(where == name or where.startswith(f"{name}.") for name in nodes)


def _read_more_than_once(steps: Sequence[Step], read: Sequence[str]) -> frozenset[str]:
    """Return the nodes whose rows would be computed more than once in an epoch."""
    times: dict[str, int] = {}
    for name in read:
        times[name] = times.get(name, 0) + 1
    shared: set[str] = set()
    for step in reversed(steps):
        here = 0
        for name in step.nodes:
            if times.get(name, 0) > 1 and not step.reads_now:
                shared.add(name)
            here += min(times.get(name, 0), 1)
        for name in step.inputs:
            times[name] = times.get(name, 0) + (1 if step.reads_now else here)
    own = {name for step in steps for name in step.nodes}
    return frozenset(shared | {name for name, count in times.items() if count > 1 and name not in own})
