"""Streaming queries that feed sources of a flow: how many epochs of each are in, so that a repeated epoch counts once.

Every query has its own count: another query, or a program, may feed the source between two of its runs.
"""

from __future__ import annotations

from penstock.engine.feed import refuse_table
from penstock.engine.graph import SourceEntry
from penstock.errors import StateError

# Queries without a name never come back; one that was forgotten is refused as one that the flow has not seen.
MOST_QUERIES = 1_000


def attach_query(entry: SourceEntry, query: str, epochs: int, begun: int | None = None) -> None:
    """Let a query that has done so many epochs, and begun so many, feed a source.

    StateError when another query feeds the source, when the flow has not seen all epochs that are done, as its views
    would lack rows, or when it has seen more than have begun: those would come again under the same numbers with
    other rows.
    """
    refuse_table(entry)
    if entry.query is not None and entry.query != query:
        raise StateError(
            f"another query feeds the source '{entry.name}'",
            code="STREAM_FLOW_TAKEN",
            hint="stop it first, or feed another source and join the two in a view with UNION ALL",
        )
    feeders = entry.state.feeders
    seen = feeders.get(query, 0)
    if seen < epochs:
        raise StateError(
            f"the query has done {epochs} epochs according to its checkpoint, and the flow has seen "
            f"{seen} of them: its views would lack the others",
            code="STREAM_FLOW_BEHIND",
            where=f"source {entry.name} of a flow",
            hint="begin again with a new flow and another checkpoint.location; a flow with a path "
            "keeps what it has seen, one in memory ends with its process",
        )
    if begun is not None and seen > begun:
        raise StateError(
            f"the flow has seen {seen} epochs of the query, and its checkpoint has begun {begun}: "
            "the others would come again with other rows, and be left out",
            code="STREAM_FLOW_AHEAD",
            where=f"source {entry.name} of a flow",
            hint="the checkpoint is older than the flow: put back the one that belongs to it, or begin "
            "again with a new flow and another checkpoint.location",
        )
    feeders.pop(query, None)
    feeders[query] = seen
    if len(feeders) > MOST_QUERIES:
        del feeders[next(iter(feeders))]
    entry.query = query


def detach_query(entry: SourceEntry, query: str) -> None:
    """Note that a query feeds the source no more; how far it came stays known."""
    if entry.query == query:
        entry.query = None
