"""Rows with values that are looked up by key: in PostgreSQL and over HTTP by Spark's tasks, in a file by a join.

What another system answers is of the moment in which it is asked: an epoch that comes again may have other values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.data.operation import DELETE, OPERATION
from penstock.errors import ConfigError, SqlError, suggest
from penstock.sinks.column import column
from penstock.spark.observed import Observed
from penstock.spark.operation import passing
from penstock.transforms.base import ERROR, INPUT, Transform, TransformContext
from penstock.transforms.failure import good_columns, input_of
from penstock.transforms.lookup import enrich
from penstock.transforms.lookup.http import HttpBackend
from penstock.transforms.lookup.keyed import LookupBackend
from penstock.transforms.lookup.options import LookupOptions
from penstock.transforms.lookup.postgres import PostgresBackend
from penstock.transforms.lookup.relation import LookupRelation, ddl, existing, postgres_url
from penstock.transforms.postgres_table import PostgresTable
from penstock.transforms.task_error import raising

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.config import Settings

_ANSWER, _VALUE, _CORRUPT = "penstock_answer", "penstock_value", "penstock_corrupt"
_MISSING = "missing"


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the keys are cast, and which columns come out."""

    keys: Sequence[str | None]
    """The types of the keys there, by Spark's names; None leaves a key as it is."""
    columns: Mapping[str, str]
    """Of the values: the name there, and the name in the rows."""
    backend: LookupBackend | None = None


class LookupTransform(Transform):
    """Adds columns to rows by their key."""

    Options = LookupOptions
    keeps_columns = True

    options: LookupOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        if not self.options.on:
            raise ConfigError(
                "the lookup transform needs the option 'on'",
                code="TRANSFORM_OPTION_MISSING",
                hint="add on: customer_id, or on: {customer_id: id} where the column has another name there",
            )
        self._plan: _Plan | None = None
        self._relation: LookupRelation | None = None
        self._observed: Observed | None = None

    def check(self, context: TransformContext) -> None:
        self._planned(context)

    def open(self, context: TransformContext) -> None:
        self._planned(context)

    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        plan = self._planned(context)
        self._check_columns(rows, plan, context)
        looked_up = (
            self._joined(rows, plan, context) if plan.backend is None else self._asked(rows, plan, context)
        )
        return self._settled(looked_up, rows, plan, context)

    def counts(self) -> Mapping[str, int]:
        observed, self._observed = self._observed, None
        return {} if observed is None else {_MISSING: int(observed.values()[_MISSING])}

    def close(self) -> None:
        if self._relation is not None:
            self._relation.close()
            self._relation = None
        self._plan = None

    def _planned(self, context: TransformContext) -> _Plan:
        if self._plan is None:
            match self.options.backend:
                case "postgres":
                    self._plan = self._plan_postgres(context)
                case "http":
                    self._plan = self._plan_http()
                case _:
                    self._plan = self._plan_file(context)
        return self._plan

    def _plan_postgres(self, context: TransformContext) -> _Plan:
        options = self.options
        url = postgres_url(options, context.settings)
        table = PostgresTable(url, options.table, query=options.query)
        columns = {table_column.name: table_column for table_column in table.columns()}
        keys = [columns[existing(name, list(columns), context.name)] for name in options.on.values()]
        chosen = self._chosen(list(columns), context)
        backend = PostgresBackend(
            url=url,
            table=options.table,
            query=options.query,
            keys=tuple(keys),
            values=tuple(columns[name] for name in chosen),
            batch_size=options.batch_size,
            timeout=options.timeout / 1000,
            retry_for=options.retry_for / 1000,
        )
        return _Plan([key.kind for key in keys], chosen, backend)

    def _plan_http(self) -> _Plan:
        options = self.options
        assert options.url is not None
        backend = HttpBackend(
            url=options.url,
            method=options.method,
            names=tuple(options.on),
            keys=tuple(options.on.values()),
            headers=options.headers,
            parallelism=options.parallelism,
            batch_size=options.batch_size,
            timeout=options.timeout / 1000,
            retry_for=options.retry_for / 1000,
        )
        columns = options.columns or {name: name for name in options.schema_}
        unknown = next((name for name in columns if name not in options.schema_), None)
        if unknown is not None:
            raise ConfigError(
                f"the lookup transform: the column '{unknown}' has no type in `schema`",
                code="TRANSFORM_OPTION_VALUE",
                hint=suggest(unknown, options.schema_, what="column"),
            )
        return _Plan([None] * len(options.on), columns, backend)

    def _plan_file(self, context: TransformContext) -> _Plan:
        self._relation = LookupRelation(
            self.options.model_copy(update={"columns": {}}), context.settings, name=context.name
        )
        schema = self._relation.frame(context.spark).schema
        keys = [schema[existing(name, schema.names, context.name)] for name in self.options.on.values()]
        return _Plan([key.dataType.simpleString() for key in keys], self._chosen(schema.names, context))

    def _chosen(self, names: Sequence[str], context: TransformContext) -> Mapping[str, str]:
        """The columns of the values there, and what they are called in the rows."""
        keys = {name.lower() for name in self.options.on.values()}
        if not self.options.columns:
            return {name: name for name in names if name.lower() not in keys}
        return {existing(name, list(names), context.name): new for name, new in self.options.columns.items()}

    def _check_columns(self, rows: DataFrame, plan: _Plan, context: TransformContext) -> None:
        columns = {name.lower() for name in rows.columns}
        for name in self.options.on:
            if name.lower() not in columns:
                raise SqlError(
                    f"the rows have no column '{name}'",
                    code="SQL_UNKNOWN_COLUMN",
                    where=f"`on` of {context.name}",
                    hint=suggest(name, rows.columns, what="column"),
                )
        for there, name in plan.columns.items():
            if name.lower() in columns:
                raise ConfigError(
                    f"the rows have a column '{name}' already",
                    code="LOOKUP_COLUMN",
                    where=context.name,
                    hint=f"give it another name: columns: {{{there}: looked_up_{name}}}",
                )

    def _keys(self, plan: _Plan) -> list[Column]:
        """The keys of the rows as they are there; NULL for one that has no value there."""
        return [
            column(name) if kind is None else column(name).try_cast(kind)
            for name, kind in zip(self.options.on, plan.keys, strict=True)
        ]

    def _asked(self, rows: DataFrame, plan: _Plan, context: TransformContext) -> DataFrame:
        from pyspark.sql import functions as F  # as PySpark's users have it
        from pyspark.sql.pandas.functions import arrow_udf

        assert plan.backend is not None
        backend, options = plan.backend, self.options
        fields = {enrich.ERROR: "string", enrich.FOUND: "boolean"}
        fields |= {f"c{at}": kind for at, kind in enumerate(backend.kinds)}
        digest = hashlib.sha256(
            f"{context.query} {context.name} {options.model_dump_json()}".encode()
        ).hexdigest()
        task = enrich.Enrich(
            id=digest,
            backend=backend,
            cache_size=options.cache_size,
            ttl=options.ttl / 1000,
            strict=context.on_error == "fail",
            required=options.missing == "error",
            node=context.name,
            names=tuple(options.on),
        )
        # The stubs want its kind as a number, and PySpark warns of just that: the kind follows from the types of the function.
        as_column: Any = arrow_udf
        answer = as_column(_function(task), ddl(fields))
        operation = column(OPERATION) if OPERATION in rows.columns else F.lit(None).cast("string")
        # Not deterministic, so that Spark calls it once for each row, and runs no later filter first.
        return rows.withColumn(_ANSWER, answer.asNondeterministic()(*self._keys(plan), operation))

    def _joined(self, rows: DataFrame, plan: _Plan, context: TransformContext) -> DataFrame:
        """The rows with the values of the file: a join with a broadcast table, so that their order stays."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        assert self._relation is not None
        table = self._relation.frame(context.spark)
        keys = [column(existing(name, table.columns, context.name)) for name in self.options.on.values()]
        labels = [f"penstock_key_{at}" for at in range(len(keys))]
        values = [column(name).alias(f"c{at}") for at, name in enumerate(plan.columns)]
        answer = F.struct(
            F.lit(None).cast("string").alias(enrich.ERROR), F.lit(True).alias(enrich.FOUND), *values
        )
        answers = table.select(
            *[key.alias(label) for key, label in zip(keys, labels, strict=True)], answer.alias(_ANSWER)
        )
        keyed = rows.select(
            "*", *[key.alias(f"{label}_") for key, label in zip(self._keys(plan), labels, strict=True)]
        )
        same = [F.col(f"{label}_") == F.col(label) for label in labels]
        joined = keyed.join(F.broadcast(answers), same, "left")
        return joined.select(*[column(name) for name in rows.columns], _ANSWER)

    def _settled(
        self, looked_up: DataFrame, rows: DataFrame, plan: _Plan, context: TransformContext
    ) -> DataFrame:
        """The answers as columns, and what becomes of rows without one."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        has_row = F.coalesce(F.col(_ANSWER)[enrich.FOUND], F.lit(False))
        is_delete = column(OPERATION).eqNullSafe(DELETE) if OPERATION in rows.columns else F.lit(False)
        reason = F.col(_ANSWER)[enrich.ERROR]
        values = [F.col(_ANSWER)[f"c{at}"] for at in range(len(plan.columns))]
        if self.options.backend == "http":
            looked_up, values, reason = self._parsed(looked_up, plan, reason)
        if self.options.missing == "error" and self.options.backend == "file":
            reason = F.when(~has_row & ~is_delete, F.lit("the key is not there"))
        observed = Observed(looked_up, {_MISSING: F.count_if(~has_row & reason.isNull())})
        self._observed, out = observed, observed.frame
        if self.options.missing == "drop":
            out = passing(out, has_row | reason.isNotNull())
        added = [value.alias(name) for value, name in zip(values, plan.columns.values(), strict=True)]
        own = [column(name) for name in rows.columns]
        if context.on_error == "fail":
            return self._strict(out, reason, context).select(*own, *added)
        failed = reason.isNotNull()
        return out.select(
            *good_columns(rows, failed, keys=context.keys),
            *[
                F.when(~failed, value).alias(name)
                for value, name in zip(values, plan.columns.values(), strict=True)
            ],
            F.when(
                failed, F.concat(F.lit(f"cannot be looked up by {', '.join(self.options.on)}: "), reason)
            ).alias(ERROR),
            F.when(failed, input_of(rows.columns)).alias(INPUT),
        )

    def _parsed(
        self, looked_up: DataFrame, plan: _Plan, reason: Column
    ) -> tuple[DataFrame, list[Column], Column]:
        """The answers of a service, read in the types of the columns; one that does not fit is an error of its rows."""
        from pyspark.sql import functions as F

        types = {**{name: self.options.schema_[name] for name in plan.columns}, _CORRUPT: "string"}
        text = F.col(_ANSWER)["c0"]
        value = F.from_json(text, ddl(types), {"columnNameOfCorruptRecord": _CORRUPT})
        read = looked_up.withColumn(_VALUE, value)
        misfit = F.when(
            F.col(_VALUE)[_CORRUPT].isNotNull(),
            F.concat(F.lit("the answer does not fit the columns: "), text),
        )
        return read, [F.col(_VALUE)[name] for name in plan.columns], F.coalesce(reason, misfit)

    def _strict(self, out: DataFrame, reason: Column, context: TransformContext) -> DataFrame:
        """The rows, of which one that cannot be looked up ends the epoch."""
        from pyspark.sql import functions as F

        if self.options.backend == "postgres":
            return out  # its task has raised
        keys = F.to_json(F.struct(*[column(name) for name in self.options.on]), {"ignoreNullFields": "false"})
        message = F.concat(F.lit("a row cannot be looked up, with "), keys, F.lit(": "), reason)
        return out.where(
            F.when(reason.isNull(), F.lit(True)).otherwise(
                raising(message, code="LOOKUP_ROW", where=context.name, hint=enrich.HINT)
            )
        )


def _function(task: enrich.Enrich) -> Any:
    """The task as a function with the types by which Spark knows what it takes."""
    import pyarrow as pa

    def answers(batches: Any) -> Any:
        return task(batches)

    answers.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return answers
