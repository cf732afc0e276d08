"""The dead letters of a pipeline that wait for a replay, and the request for one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, StateError, suggest
from penstock.pipeline.group_name import earlier_groups, job_name, kinds_of
from penstock.pipeline.planner import Planner, has_letters
from penstock.pipeline.replay import Request, Requests
from penstock.pipeline.run import state_folder
from penstock.transforms import dead_letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine.session import Session
    from penstock.pipeline.run import PipelinePlan
    from penstock.pipeline.spec import NodeSpec, PipelineSpec


class PendingLetters:
    """The letters of the nodes of a pipeline, or of one of them, that were not replayed and are in no request yet."""

    def __init__(self, session: Session, spec: PipelineSpec, node: str | None) -> None:
        self._session = session
        self._spec = spec
        before = earlier_groups(spec.name, session.queries.backend())
        self._planner = Planner(
            session,
            spec,
            folder=state_folder(session, spec),
            before={name: kinds_of(job) for name, job in before.items()},
        )
        self.nodes = _nodes(spec, node)

    def job(self, node: str) -> str:
        """The job that runs a node."""
        return job_name(self._spec.name, self._planner.group_of(node))

    def requests(self, node: str) -> Requests:
        """What was asked of the job that runs a node."""
        return Requests(self._session.queries.backend(), self.job(node))

    def frame(self, limit: int | None = None) -> DataFrame:
        """The letters, the oldest first."""
        frames = [
            dead_letter.pending(
                self._planner.dead_letters(node).read(self._session.spark),
                pipeline=self._spec.name,
                nodes=[node.name],
                replayed=self.requests(node.name).replayed(),
            )
            for node in self.nodes
        ]
        letters = reduce(lambda left, right: left.unionByName(right), frames).orderBy("epoch", "node", "id")
        return letters if limit is None else letters.limit(limit)

    def ask(self, plan: PipelinePlan, limit: int | None = None) -> dict[str, list[Request]]:
        """Ask for the letters to go through again, and return the requests by the group that is to take them.

        Errors of letters are raised before any request is made.
        """
        ids: dict[str, list[str]] = {}
        for row in self.frame(limit).select("node", "id").collect():
            ids.setdefault(row.node, []).append(row.id)
        for group in plan.groups:
            for name in ids.keys() & group.letters.keys():
                self._refuse_unready(plan.job_name(group))
                group.letters[name].check(self._session.spark, ids[name])
        for node, letters in ids.items():
            self.requests(node).add(node, letters)
        names = {node.name for node in self.nodes}
        return {
            group.name: requests
            for group in plan.groups
            if (
                requests := [
                    request
                    for request in Requests(self._session.queries.backend(), plan.job_name(group)).waiting()
                    if request.node in names
                ]
            )
        }

    def _refuse_unready(self, name: str) -> None:
        backend = self._session.queries.backend()
        job = backend.jobs.find(name)
        if job is None or backend.epochs.last(name) is None:
            raise StateError(
                f"'{name}' has done nothing yet that a replay could go on from",
                code="PIPELINE_REPLAY",
                where=backend.location,
                hint="a first run, or one after a reset, reads the rows of its sources again anyway",
            )
        if job.state == "PAUSED":
            raise StateError(
                f"'{name}' is paused",
                code="PIPELINE_REPLAY",
                where=backend.location,
                hint=f"penstock jobs resume {name}, or stop it",
            )


def _nodes(spec: PipelineSpec, name: str | None) -> Sequence[NodeSpec]:
    """The nodes that keep dead letters, or one of them."""
    nodes = {node.name: node for node in spec.nodes.values() if has_letters(node)}
    if not nodes:
        raise ConfigError(
            f"no node of '{spec.name}' keeps dead letters",
            code="PIPELINE_REPLAY",
            where=spec.path,
            hint="on_error: dead_letter of a transform or a sink",
        )
    if name is None:
        return list(nodes.values())
    node = spec.find(name)
    if node is None or node.name not in nodes:
        raise ConfigError(
            f"'{name}' is no node with dead letters",
            code="PIPELINE_NODE",
            where=spec.path,
            hint=suggest(name, nodes, what="node"),
        )
    return [node]
