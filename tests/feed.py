"""Rows that keep coming while a test kills those who read them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from confluent_kafka import Producer

from servers.kafka import Broker

ROWS_PER_FILE = 40


class Feed:
    """Writes new rows every now and then as long as the `with` block lasts: to a file, in one move, and to a topic."""

    def __init__(self, folder: Path, broker: Broker, topic: str, *, seconds: float = 1.0) -> None:
        self._folder = folder
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        self._topic = topic
        self._seconds = seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows = 0

    def __enter__(self) -> Feed:
        self._folder.mkdir()
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._seconds):
            self._write()

    def _write(self) -> None:
        ids = range(self.rows, self.rows + ROWS_PER_FILE)
        lines = [json.dumps({"id": number, "k": number % 7}) for number in ids]
        made = self._folder.parent / "next.json"
        made.write_text("\n".join(lines))
        self.rows += ROWS_PER_FILE
        made.rename(self._folder / f"{self.rows:09d}.json")
        for line in lines:
            self._producer.produce(self._topic, line)
        assert self._producer.flush(30) == 0
