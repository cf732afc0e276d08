"""A plugin as a sink: its life, its rows on the driver or in tasks, its side outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field, field_validator

from penstock.errors import ConfigError, PenstockError
from penstock.options import Options, OptionsOwner, Others, mistake, read_options
from penstock.plugin import PluginContext, SinkPlugin, TransientValues, imported
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, counted
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.side_sink import SideSink
from penstock.spark.errors.flow_table import encoded

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings

SIDE = "side_output."


def sink_of(kind: Any, options: Mapping[str, Any], *, name: str, settings: Settings | None = None) -> Sink:
    """Return the sink that a class or a factory makes of options; a plugin's class becomes a `PluginSink`."""
    if isinstance(kind, type) and issubclass(kind, SinkPlugin):
        return PluginSink(kind, options, name=name, settings=settings)
    makes_sinks = issubclass(kind, Sink) if isinstance(kind, type) else callable(kind)
    sink = kind(options, settings) if makes_sinks else None
    if not isinstance(sink, Sink):
        raise ConfigError(
            f"'{name}' is no sink: {kind!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a subclass of penstock.SinkPlugin",
        )
    return sink


class PythonOptions(Options):
    """The class of a plugin that has no entry point."""

    model_config = ConfigDict(extra="allow")
    other_options: ClassVar[Others | None] = Others("", "options of the plugin")

    module: str = Field(description="the class, as `my_module:MySink`")

    @field_validator("module")
    @classmethod
    def _names_a_class(cls, module: str) -> str:
        name, _, attribute = module.partition(":")
        if not (name and attribute):
            raise mistake(f'must be "my_module:MySink", got {module!r}')
        return module


@dataclass(frozen=True, slots=True)
class SinkFactory:
    """Something that makes sinks and is not the class of them."""

    Options: type[Options]
    make: Callable[[Mapping[str, Any], Settings | None], Sink]

    def __call__(self, options: Mapping[str, Any], settings: Settings | None = None) -> Sink:
        return self.make(options, settings)


def _python_sink(options: Mapping[str, Any], settings: Settings | None) -> Sink:
    python = read_options(PythonOptions, options, owner=OptionsOwner("the python sink"))
    kind = imported(python.module)
    name = python.module.partition(":")[2]
    return sink_of(kind, python.model_extra or {}, name=name, settings=settings)


PYTHON_SINK = SinkFactory(PythonOptions, _python_sink)


class PluginSink(Sink):
    """Leads a plugin through its life."""

    takes_operations = True

    def __init__(
        self,
        kind: type[SinkPlugin],
        options: Mapping[str, Any] | Options,
        *,
        name: str,
        settings: Settings | None = None,
        side_sinks: Mapping[str, Sink] | None = None,
    ) -> None:
        """Check the options, unless they are checked already; `side_sinks` are the side outputs by their names."""
        self._plugin_kind = kind
        self._name = name
        super().__init__({}, settings)
        if isinstance(options, Options):
            self.options = options
        else:
            own = {key: value for key, value in options.items() if not key.startswith(SIDE)}
            self.options = read_options(
                kind.Options, own, owner=OptionsOwner(f"the sink {name}"), settings=settings
            )
            sides = {key: value for key, value in options.items() if key.startswith(SIDE)}
            side_sinks = {
                key.removeprefix(SIDE): _side_sink(key, value, settings) for key, value in sides.items()
            }
        self.modes = frozenset(kind.modes)  # type: ignore[misc]  # fixed for all sinks but plugins
        self._side = {key: SideSink(sink, key) for key, sink in (side_sinks or {}).items()}
        self._plugin: SinkPlugin | None = None
        self._context: PluginContext | None = None
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

    def check(self, target: Target) -> None:
        for side in self._side.values():
            side.check(target.spark, name=target.name, settings=target.settings)

    def open(self, target: Target) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._target = target
        self._context = PluginContext(
            query=target.query,
            name=target.name,
            mode=target.mode,
            schema=to_arrow_schema(target.schema),
            keys=target.keys,
            operation=target.operation,
            labels=dict(target.labels),
            current=lambda: self._number,
            memory=target.state if target.state is not None else TransientValues(),
            side=self._side_output,
        )
        self._plugin = self._plugin_kind(self.options)
        self._plugin.initialize(self._context)

    def write(self, epoch: Epoch) -> int | None:
        plugin = self._opened()
        self._number = epoch.number
        try:
            rows = self._in_tasks(epoch) if plugin.parallel else self._on_driver(plugin, epoch)
            for side in self._side.values():
                side.store(self._query(), epoch.number)
            plugin.process_checkpoint_marker(epoch.number)
        finally:
            self._number = None
        return rows

    def finalize(self, epoch: int) -> None:
        self._opened().process_checkpoint_finalizer(epoch)
        for side in self._side.values():
            side.finalize(epoch)

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
        with EpochRows(epoch.frame) as epoch_rows:
            for batch in epoch_rows.batches():
                if batch.num_rows:
                    plugin.process_batch(batch)
                    rows += batch.num_rows
        return rows

    def _in_tasks(self, epoch: Epoch) -> int:
        context = self._context
        assert context is not None
        # State and side outputs stay on the driver.
        in_task = replace(context, current=_Fixed(epoch.number), memory=None, side=None)
        frame, rows = counted(epoch.frame)
        task = _Task(self._plugin_kind, self.options, in_task, epoch.number)
        frame.mapInArrow(task, "done INT").collect()
        return rows()

    def _side_output(self, name: str) -> SideSink:
        if name not in self._side:
            raise ConfigError(
                f"the sink {self._name} has rows for a side output '{name}', and the query does not say where they go",
                code="STREAM_OPTION_MISSING",
                hint=f'add .option("{SIDE}{name}", {{"format": "parquet", "path": "{name}/"}}), or in a pipeline '
                f"side_outputs: {{{name}: {{type: file, path: {name}/}}}}",
            )
        return self._side[name]

    def _query(self) -> Target:
        assert self._target is not None, "the sink was not opened"
        return self._target

    def _opened(self) -> SinkPlugin:
        assert self._plugin is not None, "the sink was not opened"
        return self._plugin


def _side_sink(option: str, value: Any, settings: Settings | None) -> Sink:
    from penstock.sinks import SINKS

    if not isinstance(value, Mapping) or "format" not in value:
        raise ConfigError(
            f"{option} must be a dictionary with a format, got {value!r}",
            code="STREAM_OPTION_VALUE",
            hint='for example {"format": "parquet", "path": "rejected/"}',
        )
    name = str(value["format"])
    options = {key: item for key, item in value.items() if key != "format"}
    return sink_of(SINKS.load(name), options, name=name, settings=settings)


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
    context: PluginContext
    number: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        try:
            self._lived(batches, task.partitionId())
        except PenstockError as error:
            # The driver gets the text of an exception alone, and this one is to be an error of ours again.
            raise RuntimeError(encoded(error)) from error
        yield from ()

    def _lived(self, batches: Iterable[pa.RecordBatch], partition: int) -> None:
        plugin: SinkPlugin | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if plugin is None:
                    plugin = self.kind(self.options)
                    plugin.initialize(replace(self.context, partition=partition))
                plugin.process_batch(batch)
            if plugin is not None:
                plugin.process_checkpoint_marker(self.number)
        finally:
            if plugin is not None:
                plugin.terminate()
