"""Calls that the examples of Spark's documentation do not give: operators, syntax of its own, constants that must fit together.

`<<kind>>` or `<<kind:text>>` is a column of that kind; texts are the names in `kinds.TEXTS`.
"""

from __future__ import annotations

import re

from sweep.kinds import TEXTS
from sweep.template import Slot, Template

_INFIX = (
    *(
        "!=",
        "%",
        "&",
        "*",
        "+",
        "-",
        "/",
        "<",
        "<<",
        "<=",
        "<=>",
        "<>",
        "=",
        "==",
        ">",
        ">=",
        ">>",
        ">>>",
        "^",
        "|",
    ),
    *("||", "and", "or", "div"),
)
_TYPES = (
    *(
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(10,2)",
        "decimal(38,18)",
    ),
    *("string", "binary", "date", "timestamp", "timestamp_ntz", "time", "interval day to second"),
    *(
        "interval year to month",
        "variant",
        "array<string>",
        "map<string,bigint>",
        "struct<a:bigint,b:string>",
    ),
)

FORMS: dict[str, tuple[str, ...]] = {
    **{name: (f"(<<int>> {name} <<int>>)",) for name in _INFIX},
    "-": ("(<<int>> - <<int>>)", "(- <<int>>)"),
    "+": ("(<<int>> + <<int>>)", "(+ <<int>>)"),
    "and": ("(<<boolean>> AND <<boolean>>)",),
    "or": ("(<<boolean>> OR <<boolean>>)",),
    "!": ("(! <<boolean>>)",),
    "not": ("(NOT <<boolean>>)",),
    "~": ("(~ <<int>>)",),
    "between": ("(<<int>> BETWEEN <<int>> AND <<int>>)", "(<<int>> NOT BETWEEN <<int>> AND <<int>>)"),
    "in": (
        "(<<int>> IN (<<int>>, <<int>>))",
        "(<<int>> NOT IN (1, <<int>>, NULL))",
        "(<<string>> IN ('abc', ''))",
    ),
    "case": (
        "CASE WHEN <<boolean>> THEN <<int>> ELSE <<int>> END",
        "CASE <<int>> WHEN <<int>> THEN <<string>> WHEN 0 THEN 'zero' END",
    ),
    "when": ("CASE WHEN <<boolean>> THEN <<int>> END",),
    "like": (
        "(<<string>> LIKE 'a%')",
        "(<<string>> LIKE <<string:pattern>>)",
        "(<<string>> LIKE 'a#%' ESCAPE '#')",
    ),
    "ilike": ("(<<string>> ILIKE 'A%')", "(<<string>> ILIKE <<string:pattern>>)"),
    "rlike": ("(<<string>> RLIKE '^[a-c]+')", "(<<string>> RLIKE <<string:pattern>>)"),
    "regexp": ("(<<string>> REGEXP '^[a-c]+')", "regexp(<<string>>, <<string:pattern>>)"),
    "cast": tuple(f"CAST(<<int>> AS {kind})" for kind in _TYPES),
    **{
        name: (f"{name}(<<string:number>>)", f"{name}(<<double>>)", f"{name}(<<int>>)")
        for name in (
            "bigint",
            "boolean",
            "decimal",
            "double",
            "float",
            "int",
            "smallint",
            "string",
            "tinyint",
        )
    },
    "binary": ("binary(<<string>>)", "binary(<<int>>)"),
    "date": ("date(<<string:moment>>)", "date(<<timestamp>>)"),
    "timestamp": ("timestamp(<<string:moment>>)", "timestamp(<<date>>)", "timestamp(<<bigint>>)"),
    "time": ("time(<<string:time>>)", "time(<<timestamp>>)"),
    "randstr": ("randstr(5)", "randstr(5, 0)"),
    "uniform": ("uniform(1, 10)", "uniform(1, 10, 0)"),
    "extract": tuple(
        f"EXTRACT({unit} FROM <<timestamp>>)"
        for unit in ("YEAR", "MONTH", "WEEK", "DOW", "HOUR", "SECOND", "YEAROFWEEK")
    ),
    "trim": (
        "TRIM(<<string>>)",
        "TRIM(BOTH <<string>> FROM <<string>>)",
        "TRIM(LEADING 'a' FROM <<string>>)",
    ),
    "position": ("position(<<string>> IN <<string>>)",),
    "overlay": ("OVERLAY(<<string>> PLACING <<string>> FROM <<int>> FOR <<int>>)",),
    "timestampadd": (
        "TIMESTAMPADD(MONTH, <<int>>, <<timestamp>>)",
        "TIMESTAMPADD(HOUR, <<bigint>>, <<timestamp>>)",
    ),
    "timestampdiff": ("TIMESTAMPDIFF(MONTH, <<timestamp>>, <<timestamp>>)",),
    "dateadd": ("dateadd(<<date>>, <<int>>)", "dateadd(MONTH, <<int>>, <<timestamp>>)"),
    "date_add": ("date_add(<<date>>, <<int>>)",),
    "datediff": ("datediff(<<date>>, <<date>>)", "datediff(DAY, <<timestamp>>, <<timestamp>>)"),
    "date_diff": ("date_diff(<<date>>, <<date>>)",),
    "trunc": ("trunc(<<date>>, 'MM')", "trunc(<<date>>, <<string:unit>>)"),
    "date_trunc": ("date_trunc('HOUR', <<timestamp>>)", "date_trunc(<<string:unit>>, <<timestamp>>)"),
    "date_format": (
        "date_format(<<timestamp>>, 'yyyy-MM-dd HH:mm')",
        "date_format(<<timestamp>>, <<string:format>>)",
    ),
    "get_json_object": (
        "get_json_object(<<string:json>>, '$.a')",
        "get_json_object(<<string:json>>, <<string>>)",
    ),
    "map": ("map(<<string>>, <<int>>)", "map('k', <<array<int>>>)"),
    "struct": ("struct(<<int>>, <<string>>)",),
    "transform": (
        "transform(<<array<int>>>, x -> x + 1)",
        "transform(<<array<string>>>, (x, i) -> concat(x, i))",
    ),
    "filter": ("filter(<<array<int>>>, x -> x > 1)",),
    "exists": ("exists(<<array<int>>>, x -> x IS NULL)",),
    "forall": ("forall(<<array<int>>>, x -> x % 2 = 0)",),
    "aggregate": ("aggregate(<<array<int>>>, 0L, (acc, x) -> acc + x)",),
    "reduce": ("reduce(<<array<int>>>, 0L, (acc, x) -> acc + x)",),
    "zip_with": ("zip_with(<<array<int>>>, <<array<int>>>, (x, y) -> coalesce(x, y))",),
    "array_sort": (
        "array_sort(<<array<int>>>)",
        "array_sort(<<array<string>>>, (l, r) -> CASE WHEN l < r THEN 1 WHEN l > r THEN -1 ELSE 0 END)",
    ),
    "map_filter": ("map_filter(<<map<string,int>>>, (k, v) -> v > 1)",),
    "transform_keys": ("transform_keys(<<map<string,int>>>, (k, v) -> upper(k))",),
    "transform_values": ("transform_values(<<map<string,int>>>, (k, v) -> v + 1)",),
    "map_zip_with": ("map_zip_with(<<map<string,int>>>, <<map<string,int>>>, (k, a, b) -> coalesce(a, b))",),
    "current_timezone": ("current_timezone()",),
    "mod": ("mod(<<int>>, <<int>>)",),
    "collate": ("(collate(<<string>>, 'UTF8_LCASE') = 'ABC')",),
    "assert_true": ("assert_true(<<boolean>>)", "assert_true(<<boolean>>, 'no')"),
    "raise_error": ("if(<<boolean>>, raise_error('no'), 1)",),
    "st_asbinary": ("st_asbinary(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040'))",),
    **{
        name: (f"{name}({arguments}) OVER (PARTITION BY g ORDER BY id)",)
        for name, arguments in {
            "row_number": "",
            "rank": "",
            "dense_rank": "",
            "percent_rank": "",
            "cume_dist": "",
            "ntile": "3",
            "lag": "<<int>>, 2",
            "lead": "<<int>>, 1, <<int>>",
            "nth_value": "<<int>>, 2",
        }.items()
    },
    "schema_of_json_agg": ("schema_of_json_agg(<<string:json>>)",),
    "max_by": ("max_by(<<string>>, <<int>>)",),
    "min_by": ("min_by(<<string>>, <<int>>)",),
}

# Table functions as whole queries; `sweep_table` has the columns id and g.
TABLES: dict[str, tuple[str, ...]] = {
    "range": (
        "SELECT t.id, r.id AS n FROM sweep_table t JOIN range(1, 20, 3) r ON r.id = t.g",
        "SELECT * FROM range(3)",
    ),
    "explode": (
        "SELECT id, x.* FROM sweep_table, LATERAL explode(array(g, id)) x",
        "SELECT * FROM explode(array(1, 2))",
    ),
    "explode_outer": (
        "SELECT id, x.* FROM sweep_table, LATERAL explode_outer(IF(g = 1, NULL, map(g, id))) x",
    ),
    "posexplode": ("SELECT id, x.* FROM sweep_table, LATERAL posexplode(array(g, id)) x",),
    "posexplode_outer": (
        "SELECT id, x.* FROM sweep_table, LATERAL posexplode_outer(IF(g = 1, NULL, array(g))) x",
    ),
    "inline": ("SELECT id, x.* FROM sweep_table, LATERAL inline(array(struct(g, id))) x",),
    "inline_outer": (
        "SELECT id, x.* FROM sweep_table, LATERAL inline_outer(IF(g = 1, NULL, array(struct(g, id)))) x",
    ),
    "stack": ("SELECT id, x.* FROM sweep_table, LATERAL stack(2, g, id, 7) x",),
    "json_tuple": (
        "SELECT id, x.* FROM sweep_table, LATERAL json_tuple(concat('{\"a\":', g, '}'), 'a', 'b') x",
    ),
    "variant_explode": (
        "SELECT id, x.pos, x.key FROM sweep_table, LATERAL variant_explode(parse_json(concat('[', g, ']'))) x",
    ),
    "variant_explode_outer": (
        "SELECT id, x.pos, x.key FROM sweep_table, LATERAL variant_explode_outer(parse_json(concat('[', g, ']'))) x",
    ),
    "collations": ("SELECT t.id, c.name FROM sweep_table t JOIN collations() c ON c.name = 'UTF8_BINARY'",),
    "python_worker_logs": ("SELECT t.id, l.msg FROM sweep_table t LEFT JOIN python_worker_logs() l ON true",),
    "sql_keywords": (
        "SELECT t.id, k.reserved FROM sweep_table t JOIN sql_keywords() k ON k.keyword = 'SELECT'",
    ),
    "window": (
        "SELECT window.start AS s, count(*) AS c FROM sweep_table GROUP BY window(timestamp_seconds(id), '10 seconds')",
    ),
    "session_window": (
        "SELECT session_window.start AS s, count(*) AS c FROM sweep_table GROUP BY session_window(timestamp_seconds(id * g), '3 seconds')",
    ),
    "window_time": (
        "SELECT window_time(w) AS t, c FROM (SELECT window AS w, count(*) AS c FROM sweep_table "
        "GROUP BY window(timestamp_seconds(id), '10 seconds'))",
    ),
    "grouping": ("SELECT g, grouping(g) AS x, count(*) AS c FROM sweep_table GROUP BY ROLLUP(g)",),
    "grouping_id": ("SELECT g, grouping_id(g) AS x, count(*) AS c FROM sweep_table GROUP BY CUBE(g)",),
    "cube": ("SELECT g, id % 2 AS p, count(*) AS c FROM sweep_table GROUP BY CUBE(g, id % 2)",),
    "rollup": ("SELECT g, id % 2 AS p, count(*) AS c FROM sweep_table GROUP BY ROLLUP(g, id % 2)",),
    "to_avro": ("SELECT id, hex(to_avro(g)) AS x FROM sweep_table",),
    "from_avro": ('SELECT id, from_avro(to_avro(g), \'["int", "null"]\') AS x FROM sweep_table',),
    "schema_of_avro": ("SELECT id, schema_of_avro('\"int\"') AS x FROM sweep_table",),
    "from_protobuf": ("SELECT id, from_protobuf(X'00', 'M', X'00') AS x FROM sweep_table",),
    "to_protobuf": ("SELECT id, to_protobuf(struct(g), 'M', X'00') AS x FROM sweep_table",),
    "approx_top_k_estimate": (
        "SELECT approx_top_k_estimate(approx_top_k_accumulate(1)) AS x FROM sweep_table",
    ),
}

_FORM_MARK = re.compile(r"<<([a-z_]+(?:\([\d,]+\))?(?:<[a-z:,]+>)?)(?::([a-z]+))?>>")


def templates(name: str) -> list[Template]:
    """The templates that are written here for a function."""
    return [_template(text) for text in FORMS.get(name, ())]


def _template(text: str) -> Template:
    slots: list[Slot] = []

    def mark(found: re.Match[str]) -> str:
        texts = (
            tuple(f"'{value.replace(chr(92), chr(92) * 2)}'" for value in TEXTS[found[2]]) if found[2] else ()
        )
        slots.append(Slot(found[1], texts))
        return f"<<{len(slots) - 1}>>"

    return Template(_FORM_MARK.sub(mark, text), tuple(slots))
