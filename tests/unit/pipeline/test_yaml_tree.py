"""YAML as a tree with places."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.problem import Problem
from penstock.pipeline.yaml_tree import (
    LARGEST_FILE,
    MappingTree,
    Tree,
    YamlScalar,
    decode,
    parse,
    place_in,
    places,
    plain,
)


def read(text: str) -> Tree:
    tree, problems = parse(text, "p.yaml")
    assert problems == []
    assert tree is not None
    return tree


def refused(text: str) -> Problem:
    _, problems = parse(text, "p.yaml")
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-0x1F", "-0x1F"),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("~", None),
        ("null", None),
        ('"5"', "5"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ('!!int "5"', 5),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("9" * 5000, "9" * 5000),
        ("=", "="),
    ],
)
def test_values_are_those_of_the_core_schema(text: str, value: object) -> None:
    assert plain(read(f"a: {text}")) == {"a": value}


def test_keys_are_text() -> None:
    assert plain(read("1: a\nyes: b\nnull: c\n? d\n: e")) == {"1": "a", "yes": "b", "null": "c", "d": "e"}


def test_places_are_those_of_keys_and_items() -> None:
    tree = read("a:\n  b: [x, {c: 1}]\n")
    found = {path: (place.line, place.column) for path, place in places(tree)}
    assert found == {
        ("a",): (1, 1),
        ("a", "b"): (2, 3),
        ("a", "b", 0): (2, 7),
        ("a", "b", 1): (2, 10),
        ("a", "b", 1, "c"): (2, 11),
    }
    assert str(place_in(tree, ("a", "b", 1, "c"))) == "p.yaml:2:14"
    assert str(place_in(tree, ("a", "b", 7, "nothing"))) == "p.yaml:2:6"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("sql: SELECT * FROM orders", (1, 20)),
        ("sql: 'SELECT * FROM orders'", (1, 21)),
        ("sql: |\n  SELECT *\n  FROM orders\n", (3, 8)),
        ("sql: |\n\n    SELECT *\n      FROM orders\n", (4, 12)),
        ("sql: |2\n    SELECT *\n  FROM orders\n", (3, 8)),
        ("sql: >\n  SELECT *\n  FROM orders\n", (1, 6)),
        ("sql: SELECT *\n  FROM orders\n", (1, 6)),
        ('sql: "SELECT \\n* FROM orders"\n', (1, 6)),
    ],
)
def test_places_in_a_text(text: str, place: tuple[int, int]) -> None:
    tree = read(text)
    assert isinstance(tree, MappingTree)
    sql = tree.get("sql")
    assert isinstance(sql, YamlScalar)
    at = sql.place_at(sql.text.index("orders"))
    assert (at.line, at.column) == place


def test_anchors_and_merge_keys() -> None:
    text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz: {<<: [*x, *y], c: 5}\nlist: [*x, *x]\n"
    tree = plain(read(text))
    assert tree["z"] == {"a": 1, "b": 2, "c": 5}
    assert tree["list"] == [{"a": 1, "b": 2}] * 2


@pytest.mark.parametrize(
    ("text", "place", "words", "hint"),
    [
        ("a: 1\nb: 2\na: 3", (3, 1), "'a' is here twice, first in line 1", "remove one"),
        ("a:\n\tb: 1", (2, 1), "cannot start any token", "tabs"),
        ("a:\n  b: 1\n c: 2", (3, 2), "expected <block end>", "indent"),
        ("a: b: c", (1, 5), "mapping values", "quotes"),
        ("a: {b: 1", (1, 9), "expected ',' or '}'", "bracket"),
        ("a: [1, 2\nb: 3", (2, 2), "expected ',' or ']'", "bracket"),
        ('a: "x', (1, 6), "end of stream", "quote"),
        ('a: "\\q"', (1, 6), "unknown escape", "backslash"),
        ("a: *b", (1, 4), "no anchor &b", "none"),
        ("a: &b [*b]", (1, 8), "contains itself", "remove"),
        ("a: &b {c: {d: *b}}", (1, 15), "contains itself", "remove"),
        ("a: {<<: 5}", (1, 5), "<< merges mappings", "anchor"),
        ("a: 1\n---\nb: 2", (2, 1), "second document", "own"),
        ("a: !!python/object:os.system x", (1, 4), "unknown tag !!python", "remove"),
        ("a: !mine {b: 1}", (1, 4), "unknown tag !mine", "remove"),
        ("[a, b]: c", (1, 1), "cannot be a name", "text"),
        ("a: {path: ${OUT}}", (1, 12), "not valid YAML", '"${VAR}"'),
        ("a: @b", (1, 4), "cannot start any token", "quotes"),
        ("a: \x01", (1, 4), "U+0001", "remove"),
        ("", (1, 1), "nothing in the file", "penstock init"),
        ("# only a comment\n", (1, 1), "nothing in the file", "penstock init"),
        ("---\n...\n", (1, 1), "nothing in the file", "penstock init"),
        ('a: "\\UFFFFFFFF"', (1, 1), "", "check"),
        ("%YAML 3.0\n---\na: 1", (1, 1), "", ""),
    ],
)
def test_mistakes_have_places_and_hints(text: str, place: tuple[int, int], words: str, hint: str) -> None:
    problem = refused(text)
    assert (problem.place.line, problem.place.column) == place
    assert words in problem.text
    assert hint in problem.hint
    assert problem.hint


def test_anchors_cannot_make_a_huge_tree() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    problem = refused("\n".join(lines))
    assert "values, counting what anchors repeat" in problem.text
    assert problem.place.line == 6


def test_merges_cannot_make_a_huge_tree() -> None:
    base = "b: &b {" + ", ".join(f"k{n}: 1" for n in range(1_000)) + "}\n"
    text = base + "a:\n" + "- {<<: *b}\n" * 20_000
    problem = refused(text)
    assert "values, counting what anchors repeat" in problem.text
    assert problem.place.line == 101  # where they become too many, not at the end
    assert plain(read(base + "a: [{<<: *b}, {<<: *b}]"))["a"][1]["k999"] == 1


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_places_do_not_depend_on_how_lines_end(ending: str) -> None:
    problem = refused(ending.join(["a: 1", "b: 2", "c: '\x01'"]))
    assert (problem.place.line, problem.place.column) == (3, 5)


@pytest.mark.parametrize("character", ["\ufeff", "\u2028", "\u2029", "\x85"])
def test_characters_that_nobody_sees(character: str) -> None:
    problem = refused(f"a: 1\nb{character}: 2\n")
    assert (problem.place.line, problem.place.column) == (2, 2)
    assert f"U+{ord(character):04X} is not allowed" in problem.text
    assert plain(read(f'a: "\\u{ord(character):04x}"')) == {"a": character}


def test_half_a_character_is_no_text() -> None:
    assert "U+D800, which is half of a character" in refused('a: "\\uD800"').text


def test_nesting_has_a_bound() -> None:
    assert "in each other" in refused("a: " + "[" * 100_000).text


@pytest.mark.parametrize(
    ("data", "words", "place"),
    [
        (b"a: \xff\n", "0xff is no UTF-8", (1, 4)),
        ("a: ü\nb: \xe4".encode("latin-1"), "no UTF-8", (1, 4)),
        ("a: 1".encode("utf-16"), "UTF-16", (1, 1)),
        (b"a: 1\n\x00\x01", "binary", (2, 1)),
        (b"#" * (LARGEST_FILE + 1), "bytes", (1, 1)),
    ],
)
def test_bytes_that_are_no_text(data: bytes, words: str, place: tuple[int, int]) -> None:
    problem = decode(data, "p.yaml")
    assert isinstance(problem, Problem)
    assert words in problem.text
    assert (problem.place.line, problem.place.column) == place


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfa: 1", "p.yaml") == "a: 1"


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t<~.0", max_size=80))
def test_any_text_is_a_tree_or_has_problems(text: str) -> None:
    tree, problems = parse(text, "p.yaml")
    assert tree is not None or problems
    assert all(problem.place.line >= 1 and problem.place.column >= 1 and problem.hint for problem in problems)
    if tree is not None:
        plain(tree)
        dict(places(tree))
