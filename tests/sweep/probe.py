"""Learn from Spark how each function of its registry can be called, and write that down as data (`calls.json`).

Templates come from the examples of Spark's documentation and from `forms`; the analyzer is asked which types each slot takes. Calls whose
arguments Spark takes as they are come before those for which it adds casts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from golden.spark_answer import settings
from penstock.spark.boot import janino
from sweep import forms
from sweep.kinds import KINDS, SETTINGS
from sweep.template import MARK, Slot, Template, call_of, parts, split, statements, with_columns

CALLS = Path(__file__).parent / "calls.json"
_MOST_CALLS = 40
_MOST_EXAMPLES = 6
_MOST_KINDS = 14
_MOST_TYPED = 1  # templates of one function that are tried with other types
_COMMON = 4  # kinds that are tried in one slot alone, and in pairs
_RELATION = "sweep_probe"
# Types of constants that no column of a source has -> the kind that stands for them.
_STAND_IN = (
    ("interval year", "interval year to month"),
    ("interval month", "interval year to month"),
    ("interval day", "interval day to second"),
    ("interval hour", "interval day to second"),
    ("interval minute", "interval day to second"),
    ("interval second", "interval day to second"),
    ("interval", "interval"),
    ("time(", "time"),
    ("variant", "variant"),
    ("void", "int"),
    ("char(", "string"),
    ("varchar(", "string"),
)
_NOT_IN_COLUMNS = ("interval", "time(", "variant", "void", "geo", "collate", "char(")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a call is accepted, with the type of its value, the casts in the plan, and the operator that it brings with it."""

    accepted: bool
    type: str
    casts: int
    shape: str


@dataclass(frozen=True, slots=True)
class Typed:
    """A template with certain kinds in its slots, and what the analyzer said to it; `place` is its number among those tried."""

    template: Template
    answer: Answer
    place: int = 0


class Prober:
    """Asks one session's analyzer."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._java = janino.instance(spark, __package__, "Sweep")
        self._columns: dict[str, str] = {}
        self._constants: dict[str, tuple[str, bool] | None] = {}
        self.column("int")

    def column(self, kind: str) -> str:
        """The name of a column of a type in the relation that calls are analysed over."""
        if kind not in self._columns:
            missing = [kind, *(name for name in KINDS if name not in self._columns)]
            for name in dict.fromkeys(missing):
                self._columns[name] = f"k{len(self._columns)}"
            items = (f"CAST(NULL AS {_type(name)}) AS {own}" for name, own in self._columns.items())
            self.spark.sql(f"SELECT 1 AS id, 1 AS g, {', '.join(items)}").createOrReplaceTempView(_RELATION)
        return self._columns[kind]

    def probe(self, texts: Sequence[str]) -> list[Answer]:
        """What the analyzer says to each text."""
        answers = []
        for line in self._java.probe(self.spark._jsparkSession, _RELATION, list(texts)):
            state, what, *rest = line.split("\t")
            answers.append(Answer(state == "ok", what, *((int(rest[0]), rest[1]) if rest else (0, ""))))
        return answers

    def filled(self, template: Template) -> str:
        """A template over the relation."""
        return template.filled([self.column(slot.type) for slot in template.slots])

    def accepts(self, template: Template) -> bool:
        return self.probe([self.filled(template)])[0].accepted

    def constant(self, text: str) -> str | None:
        """The type of a constant expression, None when it is no such thing."""
        if text not in self._constants:
            self._constants[text] = self._constant(text)
        found = self._constants[text]
        return found[0] if found else None

    def _constant(self, text: str) -> tuple[str, bool] | None:
        try:
            frame = self.spark.sql(f"SELECT {text} AS v")
            if not frame._jdf.queryExecution().analyzed().expressions().head().child().foldable():
                return None
            return frame.schema[0].dataType.simpleString(), True
        except Exception:
            return None


def _type(kind: str) -> str:
    return "time(6)" if kind == "time" else kind


def probe_all(spark: SparkSession, names: Sequence[str]) -> dict[str, Json]:
    """What is known about each function: its group and its calls."""
    with settings(spark, SETTINGS):
        prober = Prober(spark)
        return {name: probe_function(prober, name) for name in names}


def registry(spark: SparkSession) -> list[str]:
    """The names of all functions that Spark has, operators included."""
    return sorted(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())


def info(spark: SparkSession, name: str) -> tuple[str, str]:
    """The group of a function and the examples of its documentation."""
    jvm: Any = spark._jvm
    catalog = spark._jsparkSession.sessionState().catalog()
    try:
        found = catalog.lookupFunctionInfo(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
    except Exception:
        return "operator", ""
    return found.getGroup() or "misc_funcs", found.getExamples() or ""


def probe_function(prober: Prober, name: str) -> Json:
    """The group and the calls of one function."""
    group, examples = info(prober.spark, name)
    if group == "table_funcs":
        return {"group": group, "calls": []}
    written = [template for template in forms.templates(name) if prober.accepts(template)]
    # The order of rows in the examples of window functions is not always one.
    learned = [] if group == "window_funcs" else list(_learned(prober, name, examples))
    unique: dict[str, Template] = {}
    for template in (*learned[:_MOST_EXAMPLES], *written):
        unique.setdefault(prober.filled(template), template)
    answers = prober.probe(list(unique))
    typed = [Typed(template, answer) for template, answer in zip(unique.values(), answers, strict=True)]
    entries = [{**_entry(one), "example": True} for one in typed]
    others: list[Typed] = []
    texts = sorted(
        dict.fromkeys(one.template.text for one in typed if one.template.slots),
        key=lambda text: -text.count("<<"),
    )
    for text in texts if name == "cast" else texts[:_MOST_TYPED]:
        first = next(one.template for one in typed if one.template.text == text)
        others += [one for one in _typed(prober, first) if prober.filled(one.template) not in unique]
    return {"group": group, "calls": [*entries, *map(_entry, _chosen(others))]}


def _entry(one: Typed) -> Json:
    shape = {"shape": one.answer.shape} if one.answer.shape else {}
    return {"text": one.template.text, "slots": _slots(one.template), "type": one.answer.type, **shape}


def _slots(template: Template) -> list[Any]:
    return [[slot.type, list(slot.examples)] for slot in template.slots]


def _learned(prober: Prober, name: str, examples: str) -> Iterator[Template]:
    for statement in statements(examples):
        items, table = parts(statement)
        try:
            columns, values = _table(prober.spark, table) if table else ([], [])
        except Exception:
            continue
        for item in items:
            if call_of(item, name) is None:
                continue
            text = with_columns(item, [column for column, _ in columns])
            slots = [
                Slot(_kind(kind), tuple(texts)) for (_, kind), texts in zip(columns, values, strict=True)
            ]
            template = _renumbered(Template(text, tuple(slots)))
            lifted = _lifted(prober, name, template)
            if lifted is not None:
                yield lifted


def _table(spark: SparkSession, table: str) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Names and types of the columns of an example's table; its values are few and like the kinds' own."""
    schema = spark.sql(f"SELECT * FROM {table}").schema
    columns = [(field.name, field.dataType.simpleString()) for field in schema]
    return columns, [[] for _ in columns]


def _kind(kind: str) -> str:
    for prefix, stand_in in _STAND_IN:
        if kind.startswith(prefix):
            return stand_in
    return kind


def _renumbered(template: Template) -> Template:
    """The same template with the slots that its text has, numbered as they stand."""
    order = list(dict.fromkeys(int(number) for number in MARK.findall(template.text)))
    text = MARK.sub(lambda found: f"<<{order.index(int(found[1]))}>>", template.text)
    return Template(text, tuple(template.slots[number] for number in order))


def _lifted(prober: Prober, name: str, template: Template) -> Template | None:
    """The template with a slot for each constant argument that may be a column; None when Spark does not take the call."""
    if not prober.accepts(template):
        return None
    span = call_of(template.text, name)
    assert span is not None
    arguments = [text.strip() for text in split(template.text[span[0] : span[1]])]
    best, pieces, slots = template, list(arguments), list(template.slots)
    for number, argument in enumerate(arguments):
        if not argument or MARK.search(argument):
            continue
        kind = prober.constant(argument)
        if kind is None:
            continue
        stand_in = _kind(kind)
        if stand_in == kind and any(word in kind for word in _NOT_IN_COLUMNS):
            continue
        tried = [*pieces]
        tried[number] = f"<<{len(slots)}>>"
        more = [*slots, Slot(stand_in, (argument,) if stand_in == kind else ())]
        text = template.text[: span[0]] + ", ".join(tried) + template.text[span[1] :]
        candidate = Template(text, tuple(more))
        if prober.accepts(candidate):
            best, pieces, slots = candidate, tried, more
    return best


def _typed(prober: Prober, template: Template) -> list[Typed]:
    """The template with other kinds in its slots, where Spark takes them."""
    candidates = []
    for kinds in _combinations([slot.type for slot in template.slots]):
        slots = tuple(
            Slot(kind, slot.examples if kind == slot.type else ())
            for kind, slot in zip(kinds, template.slots, strict=True)
        )
        candidates.append(Template(template.text, slots))
    answers = prober.probe([prober.filled(candidate) for candidate in candidates])
    return [
        Typed(candidate, answer, place)
        for place, (candidate, answer) in enumerate(zip(candidates, answers, strict=True))
        if answer.accepted
    ]


def _combinations(own: list[str]) -> list[tuple[str, ...]]:
    """The kinds to try in the slots: one in all of them; of the commonest also one changed, and pairs."""
    kinds = list(KINDS)[:_MOST_KINDS]
    found = [(kind,) * len(own) for kind in kinds]
    for place in range(len(own)):
        found += [(*own[:place], kind, *own[place + 1 :]) for kind in kinds[:_COMMON]]
    if own == ["int", "int"]:
        found += product(kinds[:_COMMON], repeat=2)
    return list(dict.fromkeys(found))


def _chosen(typed: list[Typed]) -> list[Typed]:
    """The calls that are kept: fewest casts first, and first those that have a kind in a slot where none had it before."""
    ranked = sorted(typed, key=lambda one: (one.answer.casts, one.place))
    fresh: list[Typed] = []
    seen: set[tuple[str, int, str]] = set()
    for one in ranked:
        new = {(one.template.text, place, slot.type) for place, slot in enumerate(one.template.slots)} - seen
        if new:
            seen |= new
            fresh.append(one)
    least: dict[str, int] = {}
    for one in ranked:
        least.setdefault(one.template.text, one.answer.casts)
    rest = [one for one in ranked if one not in fresh and one.answer.casts == least[one.template.text]]
    return [*fresh, *rest][:_MOST_CALLS]


def write(spark: SparkSession, names: Sequence[str] | None = None) -> None:
    """Write the calls of all functions, or those of some anew."""
    every = registry(spark)
    found: dict[str, Any] = json.loads(CALLS.read_text(encoding="utf-8")) if names else {}
    found |= probe_all(spark, names or every)
    lines = [
        f" {json.dumps(name)}: {json.dumps(found[name], ensure_ascii=False)}"
        for name in every
        if name in found
    ]
    CALLS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
