"""Where the dead letters of a node are written, and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipeline.node import DeadLetter
from penstock.sources.postgres.address import completed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import Settings
    from penstock.sinks.base import Sink
    from penstock.transforms.dead_letter import DeadLetters


@dataclass(frozen=True, slots=True)
class LetterStore:
    """Where the letters of a node are stored."""

    model: DeadLetter
    folder: str
    """Of files, when the node names none."""
    settings: Settings

    def letters(self) -> DeadLetters:
        """The writer of letters."""
        from penstock.transforms.dead_letter import DeadLetters

        return DeadLetters(self._sink())

    @property
    def own_folder(self) -> str | None:
        """The folder with letters of this pipeline alone; None when the file names where they are."""
        return self.folder if self.model.type == "file" and self.model.path is None else None

    def read(self, spark: SparkSession) -> DataFrame:
        """All letters that are there, of all nodes that share the store."""
        from penstock.transforms import dead_letter

        model = self.model
        match model.type:
            case "postgres":
                return dead_letter.read_postgres(spark, self._url(), self._required("table"))
            case "iceberg":
                return dead_letter.read_table(spark, self._required("table"))
            case "kafka":
                servers = model.bootstrap_servers or self.settings.kafka_bootstrap_servers
                return dead_letter.read_kafka(
                    spark, self._required("topic"), {"kafka.bootstrap.servers": servers}
                )
        return dead_letter.read_file(spark, model.path or self.folder)

    def _sink(self) -> Sink:
        from penstock.sinks import SINKS

        kind, options = self._options()
        sink: Sink = SINKS.load(kind)(
            {name: value for name, value in options.items() if value}, self.settings
        )
        return sink

    def _options(self) -> tuple[str, dict[str, Any]]:
        model = self.model
        match model.type:
            case "postgres":
                return "postgres", {"table": self._required("table"), "url": model.url}
            case "iceberg":
                return "iceberg", {"table": self._required("table")}
            case "kafka":
                options = {"topic": self._required("topic"), "bootstrap_servers": model.bootstrap_servers}
                return "kafka", {**options, "value_format": "json"}
        return "json", {"path": model.path or self.folder}

    def _required(self, name: str) -> str:
        value: str | None = getattr(self.model, name)
        assert value is not None, "the model has checked it"
        return value

    def _url(self) -> str:
        what = "a place for dead letters in postgres"
        return completed(self.model.url, self.settings, what=what, code="STREAM_OPTION_MISSING")
