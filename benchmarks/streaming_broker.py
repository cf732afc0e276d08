"""A Kafka broker for the benchmarks of streams: the one that is named, or one that is started for the run.

    python benchmarks/streaming_broker.py

keeps one until it is interrupted, and prints its address, so that records that were produced once serve many runs.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import config

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from servers.kafka import Broker


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """The address of a broker: PENSTOCK_KAFKA_BOOTSTRAP_SERVERS, or of one that lasts as long as the `with` block."""
    known = config.load().kafka_bootstrap_servers
    if known:
        yield known
        return
    with Broker() as started:
        yield started.bootstrap_servers


def main() -> None:
    with Broker() as started:
        print(started.bootstrap_servers, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
