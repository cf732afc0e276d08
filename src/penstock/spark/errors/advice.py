"""What to do about an error, where Spark's own text or the name of its condition says it."""

from __future__ import annotations

import re

from penstock.spark.errors.cause import Fault

_PROPOSAL = re.compile(r"(?:Use|use) (?:the SQL function )?`(\w+)[`(]")
_PATTERN = "letters are those of Spark's datetime patterns, as in 'yyyy-MM-dd HH:mm:ss'; other text stands in single quotes"
_SUBQUERY = "write it as a join, or as a common table expression (WITH) that the query joins"

BY_CONDITION: dict[str, str] = {
    "CANNOT_PARSE_TIME": "the text must fit the pattern; try_to_time gives NULL instead",
    "CANNOT_DECODE_URL": "try_url_decode(url) gives NULL instead",
    "CONVERSION_INVALID_INPUT": "the text must fit the format",
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": "write it as a DOUBLE (1e40D) or as text",
    "DUPLICATED_MAP_KEY": 'conf={"spark.sql.mapKeyDedupPolicy": "LAST_WIN"} keeps the last value of a key',
    "FAILED_FUNCTION_CALL": "check the values of the arguments",
    "HLL_INVALID_INPUT_SKETCH_BUFFER": "give it what hll_sketch_agg or hll_union has made",
    "ILLEGAL_DAY_OF_WEEK": "days are MO, TU, WE, TH, FR, SA, SU, or their English names",
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION": _PATTERN,
    "INVALID_DATETIME_PATTERN": _PATTERN,
    "INVALID_EXTRACT_FIELD": "fields are YEAR, QUARTER, MONTH, WEEK, DAY, DOW, DOY, HOUR, MINUTE, SECOND",
    "INVALID_FORMAT.ESC_AT_THE_END": "write the escape character twice when it stands for itself",
    "INVALID_FORMAT.ESC_IN_THE_MIDDLE": "an escape character stands before %, _ or itself; another one is named with ESCAPE",
    "INVALID_FORMAT.MISMATCH_INPUT": "try_to_number(text, format) gives NULL instead",
    "INVALID_FORMAT": "digits are 0 or 9, groups G or ',', the point D or '.', signs S, MI or PR, as in '999G999D00'",
    "INVALID_INTERVAL_FORMAT": "write it as in INTERVAL '1' DAY or INTERVAL '1 02:03:04' DAY TO SECOND",
    "INVALID_JSON_SCHEMA_MAP_TYPE": "keys of maps in JSON are STRING",
    "INVALID_NUMERIC_LITERAL_RANGE": "leave out the suffix, or write it as a wider type",
    "INVALID_PARAMETER_VALUE": "the message has the values that the function takes",
    "INVALID_RECURSIVE_CTE": "write it as (start) UNION ALL (step); only the step may name the CTE",
    "INVALID_RECURSIVE_REFERENCE": "the step may name the CTE once, in its FROM clause, and not below an aggregate",
    "INVALID_REGEXP_REPLACE": "write \\\\ for a backslash and \\$ for a dollar sign in the replacement",
    "INVALID_SCHEMA": "write the schema as DDL text, as in 'id INT, name STRING'",
    "INVALID_SUBQUERY_EXPRESSION": "select one column in the subquery, or join it",
    "INVALID_TYPED_LITERAL": "write it as in DATE'2024-12-31' or TIMESTAMP'2024-12-31 23:59:59'",
    "INVALID_URL": "try_parse_url(url, part) gives NULL instead",
    "INVALID_UTF8_STRING": "try_validate_utf8(text) gives NULL instead, make_valid_utf8(text) mends it",
    "INVALID_VARIANT_CAST": "try_variant_get(value, path, type) gives NULL instead",
    "MALFORMED_CHARACTER_CODING": "the text has characters that the charset lacks; utf-8 has all of them",
    "MALFORMED_VARIANT": "parse the text with parse_json",
    "NOT_A_CONSTANT_STRING": "give it a text that needs no row: a literal, a session variable, or both concatenated",
    "ROW_SUBQUERY_TOO_MANY_ROWS": "add an aggregate, or LIMIT 1 with an ORDER BY",
    "UNION_NOT_SUPPORTED_IN_RECURSIVE_CTE": "write UNION ALL, and SELECT DISTINCT outside the recursion",
    "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": _SUBQUERY,
    "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE": "cast the columns of the first query to the wider type",
}


def tolerant_function(fault: Fault) -> str | None:
    """The function that Spark proposes because it gives NULL instead of the error."""
    proposal = re.search(r"'(try_\w+)'", fault.parameters.get("alternative", "")) or _PROPOSAL.search(
        fault.message
    )
    return None if proposal is None else proposal[1]


def advice(fault: Fault) -> str | None:
    """What to do about an error, if that is known: a function that gives NULL instead, or what the condition asks for."""
    function = tolerant_function(fault)
    if function is not None:
        return f"{function} gives NULL instead"
    condition = fault.condition or ""
    return BY_CONDITION.get(condition) or BY_CONDITION.get(condition.partition(".")[0])
