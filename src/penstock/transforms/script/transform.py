"""The script as a transform: rows of an epoch through `mapInArrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.data.operation import OPERATION
from penstock.transforms.base import Transform, TransformContext
from penstock.transforms.script.options import ScriptOptions
from penstock.transforms.script.source import file_name, mentions_import

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.transforms.script.program import Program


class ScriptTransform(Transform):
    """Calls the function `invoke` of a script for each row."""

    Options = ScriptOptions

    options: ScriptOptions
    _has_no_imports = False

    def check(self, context: TransformContext) -> None:
        import pyarrow as pa

        from penstock.transforms.script.check import check_loads, check_types

        nothing = pa.schema([])
        program = self._program(context, nothing, nothing)
        self._refuse_imports(program)
        if self.options.is_typescript:
            check_types(program)
        check_loads(program, memory=self.options.memory)

    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        import pyarrow as pa

        from penstock.data.schema import to_arrow_schema, to_ddl
        from penstock.transforms.columns import output_columns
        from penstock.transforms.failed_rows import with_error_columns
        from penstock.transforms.input_operation import shared_keys, with_operation_column
        from penstock.transforms.script.task import ScriptTask

        in_schema = to_arrow_schema(rows.schema)
        columns = output_columns(self.options.columns, in_schema)
        fields = with_operation_column(columns, in_schema)
        program = self._program(context, in_schema, pa.schema(fields))
        program.main()  # refuses types that no script can have
        self._refuse_imports(program)
        keeps_failed = context.on_error != "fail"
        out_schema = with_error_columns(fields) if keeps_failed else pa.schema(fields)
        task = ScriptTask(
            program=program,
            out_schema=out_schema,
            zone=cast("str", rows.sparkSession.conf.get("spark.sql.session.timeZone")),
            seconds=self.options.timeout / 1000,
            memory=self.options.memory,
            node=context.name,
            keeps_failed=keeps_failed,
            keys=shared_keys(context.keys, in_schema, fields) if OPERATION in in_schema.names else (),
        )
        return rows.mapInArrow(task, to_ddl(out_schema))

    def _program(self, context: TransformContext, in_schema: pa.Schema, out_schema: pa.Schema) -> Program:
        from penstock.transforms.script.program import Program

        return Program(
            file_name(context.name, typescript=self.options.is_typescript),
            self.options.script,
            in_schema,
            out_schema,
            self.options.bigint,
        )

    def _refuse_imports(self, program: Program) -> None:
        """Ask Deno, once, where the text leaves a doubt."""
        if self._has_no_imports or not mentions_import(self.options.script):
            return
        from penstock.transforms.script.check import check_imports

        check_imports(program)
        self._has_no_imports = True
