"""Streaming queries that feed sources of a flow: which ordinals are whose, so that a repeated epoch counts once.

The first epoch of a query gets the ordinal after the last one of the source, the next epochs the ones after it.
"""

from __future__ import annotations

from penstock.engine.graph import SourceEntry
from penstock.errors import StateError

# Queries without a name never come back; one that was forgotten is refused as one that the flow has not seen.
MOST_QUERIES = 1_000


def attach_query(entry: SourceEntry, query: str, epochs: int) -> int:
    """Let a query that has done so many epochs feed a source; return the ordinal before its first one.

    StateError when another query feeds the source, or when the flow has not seen all of the epochs: its views would lack rows.
    """
    if entry.query is not None and entry.query != query:
        raise StateError(
            f"another query feeds the source '{entry.name}'",
            code="STREAM_FLOW_TAKEN",
            hint="stop it first, or feed another source and join the two in a view with UNION ALL",
        )
    last = entry.state.ordinal or 0
    # A query that the flow does not know and that has read nothing yet adds to what is there.
    before = entry.state.feeders.get(query, 0 if epochs else last)
    seen = last - before
    if seen < epochs:
        raise StateError(
            f"the query has done {epochs} epochs according to its checkpoint, and the flow has seen "
            f"{max(0, seen)} of them: its views would lack the others",
            code="STREAM_FLOW_BEHIND",
            where=f"source {entry.name} of a flow",
            hint="a flow in memory ends with its process: begin again with another checkpoint.location, or with none",
        )
    feeders = entry.state.feeders
    feeders.pop(query, None)
    feeders[query] = before
    if len(feeders) > MOST_QUERIES:
        del feeders[next(iter(feeders))]
    entry.query = query
    return before


def detach_query(entry: SourceEntry, query: str) -> None:
    """Note that a query feeds the source no more; its ordinals stay known."""
    if entry.query == query:
        entry.query = None
