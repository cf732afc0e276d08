"""What the state backend records of the group that a job runs: enough to show how far it is and to throw its state
away, and nothing secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipeline.changes import fingerprints
from penstock.pipeline.group_folder import FOLDER
from penstock.pipeline.group_name import GROUP, NODES
from penstock.spark.micro_batch import plan as spark_plan

if TYPE_CHECKING:
    from penstock.pipeline.group import GroupPlan
    from penstock.pipeline.spec import PipelineSpec

PIPELINE = "pipeline"
"""The file."""
SOURCES = "sources"
"""The node of each source of Spark, in the order in which a checkpoint has their offsets."""
LETTERS = "dead_letters"
"""Where nodes store dead letters: a folder of the pipeline's own, or None for another store."""


def parts(spec: PipelineSpec, group: GroupPlan) -> dict[str, Any]:
    """Return the record of a group."""
    return {
        PIPELINE: spec.path,
        NODES: {name: node for name, node in fingerprints(spec).items() if name in group.nodes},
        GROUP: group.name,
        FOLDER: str(group.folder.path),
        SOURCES: spark_sources(group),
        LETTERS: {name: letters.store.own_folder for name, letters in group.letters.items()},
    }


def spark_sources(group: GroupPlan) -> list[str]:
    """The node of each source of Spark that a group reads now: a node may be several of them."""
    names = []
    for source in group.read:
        kinds = [kind for kind, _ in spark_plan.shape(source.stream.df)]
        names += [source.node.name] * kinds.count("source")
    return names
