"""The errors that Spark names: its error class, or the first part of it, says which error the user gets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from penstock.errors import ConfigError, DataError, PenstockError, SqlError, StateError, suggest
from penstock.functions import plugin as function_plugin
from penstock.spark.errors.advice import advice, tolerant_function
from penstock.spark.errors.cause import Fault
from penstock.spark.errors.wording import Question, ask, names, nearest, plain_name, sentence, short, where

_Teller = Callable[[Fault, Question], PenstockError]
_KEYWORDS = frozenset(
    """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT FULL INNER CROSS ON USING UNION EXCEPT INTERSECT
    INSERT INTO VALUES UPDATE SET DELETE MERGE CREATE REPLACE TABLE VIEW DROP ALTER WITH AS DISTINCT BETWEEN AND OR NOT
    NULL IS IN LIKE CASE WHEN THEN ELSE END DESCRIBE SHOW EXPLAIN TEMPORARY PARTITIONED OVER PARTITION WINDOW
    """.split()  # noqa: SIM905  # sixty lines of one word each say no more
)


def by_class(fault: Fault) -> tuple[type[PenstockError], str]:
    """The error and its code for a condition of Spark that has none of ours: errors in data have SQLSTATE 22."""
    name = (fault.condition or "").partition(".")[0]
    return (
        (DataError, f"DATA_{name}") if (fault.sqlstate or "").startswith("22") else (SqlError, f"SQL_{name}")
    )


def _unknown_table(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("relationName", ""))
    namespace, _, table = name.rpartition(".")
    quoted = ".".join(f"`{part}`" for part in namespace.split(".")) if namespace else ""
    tables = ask(question, f"SHOW TABLES IN {quoted}" if quoted else "SHOW TABLES", "tableName")
    hint = suggest(table, tables, what="table")
    if table.lower() in ("parquet", "csv", "json", "orc", "avro", "tsv"):
        hint = f"for a file, put its path in quotes: FROM '{name}'"
    elif not tables and not namespace:
        hint = "register_table(name, rows) makes one; a file is read by its path in quotes: FROM 'data/orders.parquet'"
    return SqlError(
        f"no table or view '{name}'", code="SQL_UNKNOWN_TABLE", where=where(fault, question), hint=hint
    )


def _unknown_column(fault: Fault, question: Question) -> PenstockError:
    parameters = fault.parameters
    name = plain_name(parameters.get("objectName") or parameters.get("colName", ""))
    proposals = names(parameters.get("proposal") or parameters.get("suggestion", ""))
    hint = None
    if proposals:
        # Spark names at most five, so five may not be all.
        listing = ", ".join(sorted(proposals)) + (", ..." if len(proposals) >= 5 else "")
        last = {proposal.rpartition(".")[2]: proposal for proposal in reversed(proposals)}
        near = nearest(name, proposals) or last.get(nearest(name.rpartition(".")[2], last) or "")
        hint = f"did you mean '{near}'? Columns here: {listing}" if near else f"columns here: {listing}"
    return SqlError(f"no column '{name}'", code="SQL_UNKNOWN_COLUMN", where=where(fault, question), hint=hint)


def _unknown_field(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("fieldName", ""))
    fields = names(fault.parameters.get("fields", ""))
    return SqlError(
        f"no field '{name}'",
        code="SQL_UNKNOWN_FIELD",
        where=where(fault, question),
        hint=suggest(name, fields, what="field") if fields else None,
    )


def _unknown_function(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("routineName", ""))
    refused = function_plugin.refusal(name)
    if refused is not None:
        place = where(fault, question)
        return ConfigError(
            f"no function '{name}': {refused.message}", code=refused.code, hint=refused.hint, where=place
        )
    near = nearest(name.rpartition(".")[2], ask(question, "SHOW FUNCTIONS", "function"))
    return SqlError(
        f"no function '{name}'",
        code="SQL_UNKNOWN_FUNCTION",
        where=where(fault, question),
        hint=f"did you mean '{near}'?" if near else "SHOW FUNCTIONS lists all",
    )


def _unknown_schema(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("schemaName", ""))
    schemas = ask(question, "SHOW NAMESPACES", "namespace")
    return SqlError(
        f"no schema '{name}'",
        code="SQL_UNKNOWN_SCHEMA",
        where=where(fault, question),
        hint=suggest(name.rpartition(".")[2], schemas, what="schema"),
    )


def _unknown_catalog(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("catalogName") or fault.parameters.get("namespace", "")).partition(
        "."
    )
    return SqlError(
        f"no catalog '{name[0]}'",
        code="SQL_UNKNOWN_CATALOG",
        where=where(fault, question),
        hint=f'name it when the session starts: catalogs={{"{name[0]}": {{"type": "hadoop", "warehouse": ...}}}}',
    )


def _ambiguous(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("name", ""))
    choices = names(fault.parameters.get("referenceNames", ""))
    return SqlError(
        f"column '{name}' is ambiguous",
        code="SQL_AMBIGUOUS_COLUMN",
        where=where(fault, question),
        hint=f"write {' or '.join(choices)}",
    )


def _syntax(fault: Fault, question: Question) -> PenstockError:
    token = fault.parameters.get("error", "")
    extra = fault.parameters.get("hint", "").lstrip(": ")
    message = f"syntax error at {'the end of the query' if 'end of input' in token else token}"
    hint = _keyword_hint(fault, question) or extra or None
    if "extra input" in extra and question.sql and ";" in question.sql:
        hint = "one statement at a time"
    return SqlError(message, code="SQL_SYNTAX", where=where(fault, question), hint=hint)


def _keyword_hint(fault: Fault, question: Question) -> str | None:
    """The misspelt word is where Spark stopped, or just before it, where it passed for an alias."""
    text = fault.text or question.sql
    if text is None or fault.line is None or fault.column is None:
        return None
    lines = text.split("\n")
    before = "\n".join([*lines[: fault.line - 1], lines[fault.line - 1][: fault.column - 1]])
    here = re.match(r"\w+", lines[fault.line - 1][fault.column - 1 :])
    words = [word for word in (here[0] if here else "", *re.findall(r"\w+", before)[-1:]) if len(word) > 3]
    for word in words:
        near = difflib.get_close_matches(word.upper(), _KEYWORDS, n=1, cutoff=0.75)
        if near and near[0] != word.upper():
            return f"did you mean {near[0]} instead of {word}?"
    return None


def _empty(fault: Fault, question: Question) -> PenstockError:
    return SqlError("the statement is empty", code="SQL_SYNTAX", hint="write a statement such as SELECT 1")


def _overflow(fault: Fault, question: Question) -> PenstockError:
    function = tolerant_function(fault)
    message = fault.parameters.get("message") or sentence(fault)
    return DataError(
        message[0].lower() + message[1:].rstrip("."),
        code="DATA_OVERFLOW",
        where=where(fault, question),
        hint=f"{function} gives NULL instead, a wider type holds the value"
        if function
        else "cast to a wider type first",
    )


def _cast(fault: Fault, question: Question) -> PenstockError:
    source, target = (fault.parameters.get(key, "").strip('"') for key in ("sourceType", "targetType"))
    return DataError(
        f"{fault.parameters.get('expression', 'a value')} ({source}) is not a valid {target}",
        code="DATA_CAST",
        where=where(fault, question),
        hint="try_cast(value AS type) gives NULL instead",
    )


def _datetime(fault: Fault, question: Question) -> PenstockError:
    return DataError(
        fault.parameters.get("rangeMessage") or sentence(fault),
        code="DATA_DATETIME",
        where=where(fault, question),
        hint="a function that begins with try_ gives NULL instead",
    )


def _length(fault: Fault, question: Question) -> PenstockError:
    return DataError(
        f"a text is longer than the {fault.parameters.get('limit', '')} characters of its column",
        code="DATA_LENGTH",
        where=where(fault, question),
        hint="cut it with left(text, length), or declare the column as STRING",
    )


def _path(fault: Fault, question: Question) -> PenstockError:
    return path_not_found(fault.parameters.get("path", ""), where=where(fault, question))


def path_not_found(path: str, *, where: str | None = None) -> PenstockError:
    """Return the error for a path that is not there, with the nearest name that is."""
    local = re.sub(r"^file:/*", "/", path)
    hint = None
    if local.startswith("/") and not re.search(r"[*?\[{]", local):
        folder = Path(local).parent
        if not folder.is_dir():
            hint = f"the folder {folder} does not exist either"
        else:
            near = nearest(Path(local).name, (entry.name for entry in folder.iterdir()))
            hint = f"did you mean '{folder / near}'?" if near else None
    elif local.startswith("/"):
        hint = "nothing matches the pattern"
    return DataError(f"no such file or folder: {local}", code="DATA_PATH_NOT_FOUND", where=where, hint=hint)


def _unreadable(fault: Fault, question: Question) -> PenstockError:
    path = re.sub(r"^file:/*", "/", fault.parameters.get("path", ""))
    return DataError(
        f"cannot read {path}: {sentence(fault)}"
        if "FOOTER" not in (fault.condition or "")
        else f"{path} is not a Parquet file",
        code="DATA_UNREADABLE_FILE",
        where=where(fault, question),
        hint="is it in another format, cut short, or being written?",
    )


def _pattern(fault: Fault, question: Question) -> PenstockError:
    """Spark's text is about its versions; what the user wrote is in the parameters."""
    pattern = fault.parameters.get("pattern") or fault.parameters.get("c")
    if pattern is None:
        message = sentence(fault)
    else:
        message = f"{pattern} is not a datetime pattern"
        if "WEEK_BASED" in (fault.condition or ""):
            message = f"the letter {pattern} counts weeks, which datetime patterns do not do"
    kind, code = by_class(fault)
    return kind(message, code=code, where=where(fault, question), hint=advice(fault))


def _raised(fault: Fault, question: Question) -> PenstockError:
    message = fault.parameters.get("errorMessage") or sentence(fault)
    return DataError(message, code="DATA_RAISED", where=where(fault, question))


def _parameter(fault: Fault, question: Question) -> PenstockError:
    name = fault.parameters.get("name", "")
    return SqlError(
        f"parameter '{name}' has no value",
        code="SQL_PARAMETER",
        where=where(fault, question),
        hint=f'pass it: sql(query, args={{"{name}": ...}})',
    )


def _exists(fault: Fault, question: Question) -> PenstockError:
    name = plain_name(fault.parameters.get("relationName") or fault.parameters.get("outputPath", ""))
    return SqlError(
        f"'{name}' is already there",
        code="SQL_ALREADY_EXISTS",
        where=where(fault, question),
        hint="use CREATE OR REPLACE, IF NOT EXISTS, or another name",
    )


def _cancelled(fault: Fault, question: Question) -> PenstockError:
    return StateError("the query was cancelled", code="QUERY_CANCELLED")


def _spark_fault(fault: Fault, question: Question) -> PenstockError:
    return SqlError(
        f"Spark cannot do this: {short(fault.parameters.get('message') or sentence(fault))}",
        code="SQL_SPARK_INTERNAL",
        where=where(fault, question),
        hint="Spark calls it an internal error: rewrite the statement, or report it",
    )


def _kept_otherwise(fault: Fault, question: Question) -> PenstockError:
    parameters = fault.parameters
    variable = parameters.get("stateVarName")
    before, now = (
        next((_fields(text) for name, text in parameters.items() if name.lower().startswith(words)), None)
        for words in (("old", "stored"), "new")
    )
    change = f": {now or 'something else'} instead of {before}" if before else ""
    return StateError(
        f"what the query keeps{f' in {variable}' if variable else ''} has changed, and the checkpoint cannot follow{change}",
        code="STREAM_STATE_SCHEMA",
        where=where(fault, question),
        hint="fields may come and go and numbers become wider, as INT to BIGINT; for another type use another name, "
        "or start from the beginning with another checkpoint.location (or `penstock state reset NAME`)",
    )


def _fields(text: str) -> str:
    """Spark's schema of state as columns; Spark's own text when it has more than plain ones.

    >>> _fields("StructType(StructField(value,StructType(StructField(n,LongType,true)),true))")
    'n BIGINT'
    >>> _fields("StructType(StructField(a,ArrayType(LongType,true),true))")
    'StructType(StructField(a,ArrayType(LongType,true),true))'
    """
    fields = re.findall(r"StructField\((\w+),(\w+)Type(\([\d,]+\))?,(?:true|false)\)", text)
    sql = {"Long": "BIGINT", "Integer": "INT", "Short": "SMALLINT", "Byte": "TINYINT"}
    if len(fields) < text.count("StructField(") - text.count(",StructType(") or not fields:
        return text
    return ", ".join(f"{name} {sql.get(kind, kind.upper())}{size}" for name, kind, size in fields)


def _fixed(kind: type[PenstockError], code: str, hint: str, message: str | None = None) -> _Teller:
    """What to say where only the place, and perhaps Spark's own sentence, differ from case to case."""

    def tell(fault: Fault, question: Question) -> PenstockError:
        return kind(message or sentence(fault), code=code, where=where(fault, question), hint=hint)

    return tell


_divide_by_zero = _fixed(
    DataError, "DATA_DIVIDE_BY_ZERO", "try_divide(a, b) gives NULL instead", "division by zero"
)
_index = _fixed(
    DataError, "DATA_INDEX", "get(array, index) and try_element_at(array, position) give NULL instead"
)
_frequency = _fixed(
    DataError,
    "DATA_NEGATIVE_FREQUENCY",
    "frequencies must be zero or positive",
    "a percentile has a negative frequency",
)
_subquery = _fixed(
    DataError,
    "DATA_SCALAR_SUBQUERY",
    "add an aggregate, or LIMIT 1 with an ORDER BY",
    "a scalar subquery returned more than one row",
)
_recursion_levels = _fixed(
    SqlError,
    "SQL_RECURSION_LIMIT",
    "stop it with a condition in the recursive part, or let it go deeper: WITH RECURSIVE name MAX RECURSION LEVEL n AS ...; "
    "a cycle in the data never ends by itself under UNION ALL",
)
_recursion_rows = _fixed(
    SqlError,
    "SQL_RECURSION_LIMIT",
    "stop it with a condition in the recursive part, or allow more: SELECT ... LIMIT ALL, or spark.sql.cteRecursionRowLimit",
)
_type_mismatch = _fixed(SqlError, "SQL_TYPE", "cast one side to the other's type")
_not_grouped = _fixed(
    SqlError,
    "SQL_NOT_GROUPED",
    "put the column in GROUP BY or in an aggregate, such as any_value(column)",
)

BY_CONDITION: dict[str, _Teller] = {
    "TABLE_OR_VIEW_NOT_FOUND": _unknown_table,
    "UNRESOLVED_COLUMN": _unknown_column,
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": _unknown_column,
    "FIELD_NOT_FOUND": _unknown_field,
    "UNRESOLVED_ROUTINE": _unknown_function,
    "ROUTINE_NOT_FOUND": _unknown_function,
    "SCHEMA_NOT_FOUND": _unknown_schema,
    "CATALOG_NOT_FOUND": _unknown_catalog,
    "REQUIRES_SINGLE_PART_NAMESPACE": _unknown_catalog,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "PARSE_SYNTAX_ERROR": _syntax,
    "PARSE_EMPTY_STATEMENT": _empty,
    "DIVIDE_BY_ZERO": _divide_by_zero,
    "REMAINDER_BY_ZERO": _divide_by_zero,
    "ARITHMETIC_OVERFLOW": _overflow,
    "BINARY_ARITHMETIC_OVERFLOW": _overflow,
    "NUMERIC_VALUE_OUT_OF_RANGE": _overflow,
    "CAST_OVERFLOW": _overflow,
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": _overflow,
    "DATETIME_OVERFLOW": _overflow,
    "INTERVAL_ARITHMETIC_OVERFLOW": _overflow,
    "CAST_INVALID_INPUT": _cast,
    "DATETIME_FIELD_OUT_OF_BOUNDS": _datetime,
    "INVALID_DATETIME_PATTERN": _pattern,
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION": _pattern,
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_WEEK_BASED_PATTERN": _pattern,
    "INVALID_ARRAY_INDEX": _index,
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": _index,
    "INVALID_INDEX_OF_ZERO": _index,
    "EXCEED_LIMIT_LENGTH": _length,
    "NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION": _frequency,
    "RECURSION_LEVEL_LIMIT_EXCEEDED": _recursion_levels,
    "RECURSION_ROW_LIMIT_EXCEEDED": _recursion_rows,
    "DATATYPE_MISMATCH": _type_mismatch,
    "PATH_NOT_FOUND": _path,
    "FAILED_READ_FILE": _unreadable,
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": _subquery,
    "USER_RAISED_EXCEPTION": _raised,
    "UNBOUND_SQL_PARAMETER": _parameter,
    "TABLE_OR_VIEW_ALREADY_EXISTS": _exists,
    "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS": _exists,
    "PATH_ALREADY_EXISTS": _exists,
    "MISSING_GROUP_BY": _not_grouped,
    "MISSING_AGGREGATION": _not_grouped,
    "SPARK_JOB_CANCELLED": _cancelled,
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION": _kept_otherwise,
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": _kept_otherwise,
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": _kept_otherwise,
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE": _kept_otherwise,
    "INTERNAL_ERROR": _spark_fault,
}
