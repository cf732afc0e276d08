"""The handler as a transform: rows of an epoch through `mapInArrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.config import secret
from penstock.data.operation import OPERATION
from penstock.errors import ConfigError
from penstock.transforms.base import Transform, TransformContext
from penstock.transforms.handler.options import HandlerOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.transforms.handler.service import Service


class HandlerTransform(Transform):
    """Posts rows to a service and goes on with those that it answers; a row may be posted again after a crash."""

    Options = HandlerOptions

    options: HandlerOptions

    def check(self, context: TransformContext) -> None:
        from penstock.transforms.handler.service import ServiceClient

        with ServiceClient(self._service()) as client:
            client.reach()

    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        import pyarrow as pa

        from penstock.data.schema import to_arrow_schema, to_ddl
        from penstock.transforms.columns import output_columns
        from penstock.transforms.failed_rows import with_error_columns
        from penstock.transforms.handler.task import HandlerTask, kinds
        from penstock.transforms.input_operation import shared_keys, with_operation_column

        in_schema = to_arrow_schema(rows.schema)
        columns = output_columns(self.options.answer_columns, in_schema)
        fields = with_operation_column(columns, in_schema)
        kinds(in_schema)
        kinds(pa.schema(fields))
        keeps_failed = context.on_error != "fail"
        out_schema = with_error_columns(fields) if keeps_failed else pa.schema(fields)
        task = HandlerTask(
            service=self._service(),
            columns=pa.schema(fields),
            out_schema=out_schema,
            zone=cast("str", rows.sparkSession.conf.get("spark.sql.session.timeZone")),
            node=context.name,
            batch_size=self.options.batch_size,
            single=self.options.one_row_per_request,
            parallelism=self.options.parallelism,
            keeps_failed=keeps_failed,
            keys=shared_keys(context.keys, in_schema, fields) if OPERATION in in_schema.names else (),
        )
        return rows.mapInArrow(task, to_ddl(out_schema))

    def _service(self) -> Service:
        from penstock.transforms.handler.service import Service

        options, headers = self.options, dict(self.options.headers)
        if options.secret_name is not None:
            value = secret(options.secret_name)
            if value is None:
                raise ConfigError(
                    f"the secret {options.secret_name} of the handler is not set",
                    code="TRANSFORM_SECRET",
                    hint=f"set the environment variable {options.secret_name}",
                )
            headers["Authorization"] = value
        return Service(options.url, headers, options.timeout / 1000, options.retry_for / 1000)
