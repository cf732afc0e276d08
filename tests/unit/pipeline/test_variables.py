"""Variables of the environment in the files of pipelines."""

from __future__ import annotations

import pytest

from growth import growth
from penstock.pipeline.secret import hide
from penstock.pipeline.variables import Filling
from penstock.pipeline.yaml_tree import parse, plain

ENVIRON = {
    "HOST": "db.internal",
    "EMPTY": "",
    "N": "05",
    "URL": "postgresql://ann:p%40ss@db/x",
    "lower": "low",
}


def filled(text: str) -> tuple[object, Filling]:
    tree, problems = parse(text, "p.yaml")
    assert tree is not None
    assert problems == []
    filling = Filling(ENVIRON)
    return plain(filling.tree(tree)), filling


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${HOST}", "db.internal"),
        ("http://${HOST}:80/${N}", "http://db.internal:80/05"),
        ("${N}", "05"),
        ("'${N}'", "05"),
        ("${NONE:-5}", "5"),
        ("${NONE:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NONE:-${HOST}/a}", "db.internal/a"),
        ("'${NONE:-{\"a\": {}}}'", '{"a": {}}'),
        ("$${HOST} $HOST $$ {HOST}", "${HOST} $HOST $$ {HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("${lower}", "low"),
        ("|\n  a ${HOST}\n  b", "a db.internal\nb"),
    ],
)
def test_values(text: str, value: str) -> None:
    result, filling = filled(f"a: {text}")
    assert result == {"a": value}
    assert filling.problems == []


def test_names_are_filled_in_too() -> None:
    assert filled("${lower}_orders: 1")[0] == {"low_orders": 1}


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("${HOTS}", 4, "HOTS is not set"),
        ("x ${NONE}", 6, "NONE is not set"),
        ("${row.id}", 4, "'${row.id}' is not a variable"),
        ("${}", 4, "'${}' is not a variable"),
        ("x${HOST", 5, "has no '}'"),
        ("${A:-${B:-${C:-${D:-${E:-${F:-${G:-${H:-${I:-${J:-x}}}}}}}}}}", 4, "more than 8"),
    ],
)
def test_mistakes(text: str, column: int, words: str) -> None:
    _, filling = filled(f"a: {text}")
    assert words in filling.problems[0].text
    assert filling.problems[0].place.line == 1
    assert filling.problems[0].place.column >= column
    assert "$${" in filling.problems[0].hint or "fewer" in filling.problems[0].hint


def test_a_mistyped_name_is_suggested() -> None:
    assert "did you mean HOST?" in filled("a: ${HOTS}")[1].problems[0].hint


def test_template_literals_of_scripts_are_no_variables() -> None:
    text = "script: 'f(`${row.id} ${total} ${HOST} ${NONE:-x} ${a ? `{` : 1}`, $${HOST})'"
    result, filling = filled(text)
    assert result == {"script": "f(`${row.id} ${total} db.internal x ${a ? `{` : 1}`, ${HOST})"}
    assert filling.problems == []


def test_what_came_from_the_environment_is_secret_with_the_passwords_in_it() -> None:
    _, filling = filled("a: ${URL}\nb: ${NONE:-default}\nc: ${EMPTY}")
    assert filling.secrets == {ENVIRON["URL"], "p%40ss", "p@ss"}
    assert (
        hide("no user ann with p@ss at postgresql://ann:p%40ss@db/x!", filling.secrets)
        == "no user ann with *** at ***!"
    )


def test_shared_trees_stay_shared() -> None:
    tree, _ = parse("a: &a {b: '${HOST}'}\nc: *a", "p.yaml")
    assert tree is not None
    result = Filling(ENVIRON).tree(tree)
    assert plain(result) == {"a": {"b": "db.internal"}, "c": {"b": "db.internal"}}


@pytest.mark.parametrize("piece", ["${", "${A:-", "${A", "$${", "${NONE}", "}${"])
def test_long_texts_take_no_long_time(piece: str) -> None:
    assert growth(lambda size: filled(f"a: '{piece * size}'"), 10_000) < 24
    assert growth(lambda size: filled(f"script: '{piece * size}'"), 10_000) < 24


def test_names_that_variables_make_the_same() -> None:
    tree, _ = parse("a: 1\n'${A}': 2\nb: {'${C}': 1, '${C}x': 2, '${D}': 3}\n", "p.yaml")
    assert tree is not None
    filling = Filling({"A": "a", "C": "c", "D": "cx"})
    filling.tree(tree)
    assert [(problem.place.line, problem.place.column, problem.text) for problem in filling.problems] == [
        (3, 29, "'${D}' is the same name as '${C}x' in line 3"),
        (2, 2, "'${A}' is the same name as 'a' in line 1"),
    ]
