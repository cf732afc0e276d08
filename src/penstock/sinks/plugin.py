"""A plugin as a sink: its life, its rows on the driver or in tasks, its side outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, suggest
from penstock.plugin import Context, SinkPlugin, options_of
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, counted
from penstock.sinks.held_rows import Held

if TYPE_CHECKING:
    import pyarrow as pa

SIDE = "side_output."


def sink_of(kind: Any, options: Mapping[str, Any], *, name: str) -> Sink:
    """The sink that a class or a factory makes of options, be it a sink or a plugin."""
    if isinstance(kind, type) and issubclass(kind, SinkPlugin):
        return PluginSink(kind, options, name=name)
    fits = issubclass(kind, Sink) if isinstance(kind, type) else callable(kind)
    made = kind(options) if fits else None
    if not isinstance(made, Sink):
        raise ConfigError(
            f"'{name}' is no sink: {kind!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a subclass of penstock.SinkPlugin",
        )
    return made


def python_sink(options: Mapping[str, Any]) -> Sink:
    """The sink of the format `python`: the class that the option `module` names as `my_module:MySink`."""
    place = str(options.get("module", ""))
    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(
            f"the python sink needs the option 'module' as \"my_module:MySink\", got {place!r}",
            code="STREAM_OPTION_MISSING" if not place else "STREAM_OPTION_VALUE",
        )
    try:
        found = import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"cannot import '{module}': {error}",
            code="PLUGIN_IMPORT",
            hint="is it installed, or its folder on PYTHONPATH?",
        ) from error
    if not hasattr(found, attribute):
        raise ConfigError(
            f"the module '{module}' has no '{attribute}'",
            code="PLUGIN_IMPORT",
            hint=suggest(attribute, [name for name in vars(found) if not name.startswith("_")], what="name"),
        )
    rest = {name: value for name, value in options.items() if name != "module"}
    return sink_of(getattr(found, attribute), rest, name=attribute)


class PluginSink(Sink):
    """Leads a plugin through its life."""

    def __init__(self, kind: type[SinkPlugin], options: Mapping[str, Any], *, name: str) -> None:
        super().__init__(options)
        self._plugin_kind = kind
        self._name = name
        self.modes = frozenset(kind.modes)  # type: ignore[misc]  # fixed for all sinks but plugins
        own = {key: value for key, value in self.options.items() if not key.startswith(SIDE)}
        self._plugin_options = options_of(kind.Options, own, what=f"the sink {name}")
        self._side = {
            key.removeprefix(SIDE): _SideSink(key, value)
            for key, value in self.options.items()
            if key.startswith(SIDE)
        }
        self._plugin: SinkPlugin | None = None
        self._context: Context | None = None
        self._target: Target | None = None
        self._number: int | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self._plugin_kind.exactly_once else Guarantee.AT_LEAST_ONCE

    @property
    def kind(self) -> str:
        return self._name

    def describe(self) -> str:
        return f"plugin {self._name}"

    def open(self, target: Target) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._target = target
        self._context = Context(
            query=target.query,
            name=target.name,
            mode=target.mode,
            schema=to_arrow_schema(target.schema),
            keys=target.keys,
            labels=dict(target.labels),
            current=lambda: self._number,
            memory=target.state if target.state is not None else _Forgetful(),
            side=self._side_output,
        )
        self._plugin = self._plugin_kind(self._plugin_options)
        self._plugin.initialize(self._context)

    def write(self, epoch: Epoch) -> int | None:
        plugin = self._opened()
        self._number = epoch.number
        try:
            rows = self._in_tasks(epoch) if plugin.parallel else self._on_driver(plugin, epoch)
            for side in self._side.values():
                side.store(self._told_target(), epoch.number)
            plugin.process_checkpoint_marker(epoch.number)
        finally:
            self._number = None
        return rows

    def finalize(self, epoch: int) -> None:
        self._opened().process_checkpoint_finalizer(epoch)

    def close(self) -> None:
        plugin, self._plugin = self._plugin, None
        if plugin is None:
            return
        try:
            plugin.terminate()
        finally:
            for side in self._side.values():
                side.close()

    def _on_driver(self, plugin: SinkPlugin, epoch: Epoch) -> int:
        rows = 0
        with Held(epoch.frame) as held:
            for batch in held.batches():
                if batch.num_rows:
                    plugin.process_batch(batch)
                    rows += batch.num_rows
        return rows

    def _in_tasks(self, epoch: Epoch) -> int:
        context = self._context
        assert context is not None
        # What stays on the driver is left out: it does not travel.
        told = replace(context, current=_Fixed(epoch.number), memory=None, side=None)
        frame, rows = counted(epoch.frame)
        work = _Task(self._plugin_kind, self._plugin_options, told, epoch.number)
        frame.mapInArrow(work, "done INT").collect()
        return rows()

    def _side_output(self, name: str) -> _SideSink:
        if name not in self._side:
            raise ConfigError(
                f"the sink {self._name} has rows for a side output '{name}', and the query does not say where they go",
                code="STREAM_OPTION_MISSING",
                hint=f'add .option("{SIDE}{name}", {{"format": "parquet", "path": "{name}/"}})',
            )
        return self._side[name]

    def _told_target(self) -> Target:
        assert self._target is not None, "the sink was not opened"
        return self._target

    def _opened(self) -> SinkPlugin:
        assert self._plugin is not None, "the sink was not opened"
        return self._plugin


class _SideSink:
    """Rows for another sink, kept until the end of the epoch."""

    def __init__(self, option: str, given: Any) -> None:
        from penstock.sinks import SINKS

        if not isinstance(given, Mapping) or "format" not in given:
            raise ConfigError(
                f"{option} must be a dictionary with a format, got {given!r}",
                code="STREAM_OPTION_VALUE",
                hint='for example {"format": "parquet", "path": "rejected/"}',
            )
        rest = {key: value for key, value in given.items() if key != "format"}
        self._sink = sink_of(SINKS.load(str(given["format"])), rest, name=str(given["format"]))
        self._opened: Target | None = None
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows until the epoch ends."""
        self._waiting.append(batch)

    def store(self, target: Target, number: int) -> None:
        """Write the rows of an epoch."""
        import pyarrow as pa

        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        frame = target.spark.createDataFrame(pa.Table.from_batches(waiting))
        if self._opened is None:
            own = replace(target, mode="append", schema=frame.schema, keys=(), state=None)
            self._sink.check(own)
            self._sink.open(own)
            self._opened = own
        self._sink.write(Epoch(number, frame))

    def close(self) -> None:
        self._waiting.clear()
        if self._opened is not None:
            self._opened = None
            self._sink.close()


@dataclass(frozen=True, slots=True)
class _Fixed:
    number: int

    def __call__(self) -> int | None:
        return self.number


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task does with its partition: the life of an instance of the plugin, for one epoch."""

    kind: type[SinkPlugin]
    options: Any
    context: Context
    number: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        plugin: SinkPlugin | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if plugin is None:
                    plugin = self.kind(self.options)
                    plugin.initialize(replace(self.context, partition=task.partitionId()))
                plugin.process_batch(batch)
            if plugin is not None:
                plugin.process_checkpoint_marker(self.number)
        finally:
            if plugin is not None:
                plugin.terminate()
        yield from ()


class _Forgetful:
    """The state of a query without a name: it ends with the query."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    def remove(self, key: str) -> None:
        self._values.pop(key, None)

    def clear(self) -> None:
        self._values.clear()
