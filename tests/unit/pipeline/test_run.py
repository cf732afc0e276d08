"""What a pipeline that runs takes from the progress of its queries."""

from __future__ import annotations

from penstock.pipeline.run import _ProgressListener
from penstock.streaming.listener import QueryProgressEvent
from penstock.streaming.progress import QueryProgress, SourceProgress


def test_only_its_own_queries_count() -> None:
    follows: list[tuple[str, int]] = []
    listener = _ProgressListener(lambda query, index: follows.append((query, index)))
    listener.names.add("shop")
    source = SourceProgress("", 5, {"phase": "snapshot"}, {"phase": "following"})
    progress = QueryProgress("", 0, 5, 5, 1, "", sources=(source,))
    for name in ("shop", "another"):
        listener.on_query_progress(QueryProgressEvent("id", name, progress))
    assert (listener.rows, follows) == (5, [("shop", 0)])
