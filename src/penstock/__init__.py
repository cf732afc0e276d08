"""One engine for batch SQL, streaming pipelines and incremental views, on Apache Spark.

>>> import penstock as ps
>>> with ps.Session.embedded() as session:                 # doctest: +SKIP
...     session.sql("SELECT 1 AS one").show()

Names are loaded when they are first used, so that `import penstock` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "Session": "penstock.engine.session",
    "Operation": "penstock.engine.operation",
    "OperationState": "penstock.engine.operation",
    "Ticket": "penstock.engine.operation",
    "IncrementalFlow": "penstock.engine.flow",
    "PartitionedIncrementalFlow": "penstock.engine.partitioned",
    "IncrementalDataFrame": "penstock.engine.incremental",
    "to_incremental": "penstock.engine.incremental",
    "DeltaBatch": "penstock.data.batch",
    "Provenance": "penstock.engine.why",
    "StepSummary": "penstock.engine.summary",
    "VectorViewSpec": "penstock.engine.vector",
    "Watch": "penstock.engine.watch",
    "OutputMode": "penstock.streaming.trigger",
    "Trigger": "penstock.streaming.trigger",
    "Stream": "penstock.streaming.stream",
    "StreamingQuery": "penstock.streaming.query",
    "QueryState": "penstock.streaming.query",
    "StreamingQueryManager": "penstock.streaming.queries",
    "StreamingQueryListener": "penstock.streaming.listener",
    "PluginContext": "penstock.plugin",
    "SourcePlugin": "penstock.plugin",
    "TransformPlugin": "penstock.plugin",
    "SinkPlugin": "penstock.plugin",
    "Options": "penstock.plugin",
    "scalar_function": "penstock.functions.plugin",
    "PenstockError": "penstock.errors",
    "ConfigError": "penstock.errors",
    "SqlError": "penstock.errors",
    "DataError": "penstock.errors",
    "StateError": "penstock.errors",
    "ConnectorError": "penstock.errors",
    "QueryTimeout": "penstock.errors",
    "InternalError": "penstock.errors",
    "OutOfMemory": "penstock.errors",
}

__all__ = sorted((*_EXPORTS, "__version__"))


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
