"""A process that feeds a flow and says what it has fed, until somebody kills it; and one whose disk is full for a while.

python -m contract.flow_feeder feed PATH DURABILITY SYNC CHECKPOINT_EVERY
python -m contract.flow_feeder full PATH
"""

from __future__ import annotations

import resource
import sys
from typing import Any

import penstock as ps


def opened(path: str, **options: Any) -> ps.IncrementalFlow:
    """The flow of a path, with a view that needs no Spark."""
    flow = ps.IncrementalFlow(path=path, clock=lambda: 0, **options)
    if "trades" not in flow._graph.sources:
        flow.register_source("trades", "symbol BIGINT, at BIGINT, n BIGINT")
    if "quotes" not in flow._graph.sources:
        flow.register_source("quotes", "symbol BIGINT, at BIGINT, bid BIGINT", primary_key=["symbol", "at"])
    if "priced" not in flow._graph.views:
        flow.register_asof_view(
            "priced",
            left="trades",
            right="quotes",
            by="symbol",
            left_time="at",
            right_time="at",
            columns=["bid"],
        )
    return flow


def feed(flow: ps.IncrementalFlow, number: int) -> None:
    """One tick: a trade and a quote, which are the same whenever it is fed."""
    symbol = number % 7
    flow.feed("quotes", [{"symbol": symbol, "at": number // 3, "bid": number}], ordinal=number)
    flow.feed("trades", [{"symbol": symbol, "at": number, "n": number}], ordinal=number)
    flow.step()


def feed_for_ever(path: str, durability: str, sync: str, checkpoint_every: int) -> None:
    """Feed from where the flow was, and print each number when its tick has returned."""
    flow = opened(
        path,
        durability=durability,
        sync="tick" if sync == "tick" else int(sync),
        checkpoint_every=checkpoint_every,
    )
    number = flow.source_info("trades").ordinal or 0
    print("open", number, flush=True)
    while True:
        number += 1
        feed(flow, number)
        print(number, flush=True)


def fill_the_disk(path: str) -> None:
    """Feed until the log cannot grow, and go on when it can."""
    flow = opened(path, checkpoint_every=2**30)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    number, refused = 0, 0
    while refused < 3:
        try:
            feed(flow, number + 1)
            number += 1
        except ps.StateError as error:
            if error.code != "FLOW_LOG":
                raise
            refused += 1
    assert flow.snapshot("trades").num_rows == number
    # No checkpoint fits either, and that harms nothing.
    assert flow._runner.directory is not None
    flow._runner.directory.checkpoint(flow._graph, None)
    flow._runner.directory.wait()
    for save in (flow.checkpoint, flow.checkpoint_full):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
        try:
            save(f"{path} saved by {save.__name__}")
        except ps.StateError as error:
            if error.code != "STATE_CHECKPOINT_UNWRITTEN":
                raise
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for save in (flow.checkpoint, flow.checkpoint_full):
        save(f"{path} saved by {save.__name__}")
        loaded = ps.IncrementalFlow.load(f"{path} saved by {save.__name__}")
        assert loaded.snapshot("priced").num_rows == number
    assert refused == 5
    for _ in range(3):
        number += 1
        feed(flow, number)
    flow._runner.directory.checkpoint(flow._graph, None)
    flow._runner.directory.wait()
    assert flow._runner.directory.error is None
    flow.close()
    print(number, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "feed":
        feed_for_ever(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        fill_the_disk(sys.argv[2])
