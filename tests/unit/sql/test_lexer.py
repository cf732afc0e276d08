from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.excerpt import excerpt
from penstock.sql.lexer import Kind, is_complete, line_and_column, significant, split, tokens, unquote

PIECES = st.sampled_from(
    [
        *"'\"`\\;-/*+$.()\n\r\t ,rRxe0195_é数",
        "--",
        "/*",
        "*/",
        "''",
        "``",
        "SELECT",
        "BEGIN",
        "END",
        "$$",
        "s3://",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60))
def test_the_tokens_of_a_text_are_the_text(text: str) -> None:
    found = list(tokens(text))
    assert "".join(token.text for token in found) == text
    assert [token.offset for token in found] == [
        sum(len(t.text) for t in found[:place]) for place in range(len(found))
    ]


@given(st.lists(PIECES, max_size=40).map("".join))
def test_statements_are_parts_of_the_script_in_order(script: str) -> None:
    end = 0
    for statement in split(script):
        assert statement.offset >= end
        assert script[statement.offset :].startswith(statement.text)
        assert statement.text.strip() == statement.text != ""
        end = statement.offset + len(statement.text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'it''s' \"a\\\"b\" r'c\\'", ["'it''s'", '"a\\"b"', "r'c\\'"]),
        ("`a``b`.c", ["`a``b`", ".", "c"]),
        ("1.5e-3BD 10L .5 1.", ["1.5e-3BD", "10L", ".5", "1."]),
        ("2020_sales 1a", ["2020_sales", "1a"]),
        ("a/* x /* y */ z */b", ["a", "b"]),
        ("/*+ BROADCAST(t) */", ["/*+", "BROADCAST", "(", "t", ")", "*/"]),
        ("a -- x \\\n y\nb", ["a", "b"]),
        ("a<=>b::int||c->d|>e", ["a", "<=>", "b", "::", "int", "||", "c", "->", "d", "|>", "e"]),
        ("$$ it's; $$ $tag$ $$ $tag$", ["$$ it's; $$", "$tag$ $$ $tag$"]),
        ("ADD JAR hdfs://b/a-b.jar", ["ADD", "JAR", "hdfs://b/a-b.jar"]),
        ("X'1F' date '2020-01-01'", ["X", "'1F'", "date", "'2020-01-01'"]),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert [token.text for token in significant(text)] == expected


@pytest.mark.parametrize("text", ["'abc", '"abc', "`abc", "/* abc", "/* /* */", "'abc\\'", "$$ abc"])
def test_what_is_not_closed_goes_to_the_end(text: str) -> None:
    last = list(tokens("x; " + text))[-1]
    assert (last.kind, last.text) == (Kind.UNCLOSED, text)
    assert not is_complete("x; " + text + ";")


def test_a_quoted_keyword_is_no_keyword() -> None:
    assert [token.upper for token in significant("from `from` 'from'")] == ["FROM", "", ""]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        (" ;; -- only this\n;", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';';\n SELECT `;` /* ; */ ; ", ["SELECT ';'", "SELECT `;` /* ; */"]),
        ("BEGIN SELECT 1; SELECT 2; END; SELECT 3", ["BEGIN SELECT 1; SELECT 2; END", "SELECT 3"]),
        (
            "l: BEGIN IF a THEN SELECT 1; END IF; WHILE b DO SELECT CASE WHEN c THEN d END; END WHILE; "
            "CASE x WHEN 1 THEN SELECT 1; END CASE; BEGIN SELECT t.end; END; END l; SELECT 2;",
            None,
        ),
        ("SELECT begin FROM t; SELECT CASE WHEN a THEN b END; SELECT 3", None),
    ],
)
def test_split(script: str, expected: list[str] | None) -> None:
    found = [statement.text for statement in split(script)]
    if expected is None:
        assert len(found) == (2 if script.startswith("l:") else 3)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("typed", "complete"),
    [("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';", False), ("", True), ("BEGIN SELECT 1;", False)],
)
def test_a_prompt_waits_for_the_end(typed: str, complete: bool) -> None:
    assert is_complete(typed) is complete


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'a\'b'", "a'b"),
        ("'it''s'", "it's"),
        ("\"it''s\"", "it''s"),
        (r"'\n\t\\ A\u0041\101\%'", "\n\t\\ AAA\\%"),
        (r"r'\n'", r"\n"),
        ("$$a$b$$", "a$b"),
    ],
)
def test_unquote(literal: str, value: str) -> None:
    assert unquote(literal) == value


def test_line_and_column_count_from_one() -> None:
    assert line_and_column("ab\ncd", 0) == (1, 1)
    assert line_and_column("ab\ncd", 4) == (2, 2)


def test_a_long_line_is_cut_around_its_place() -> None:
    query = "SELECT " + "a, " * 100 + "FORM t, " + "b, " * 100
    where, text, caret = excerpt(query, query.index("FORM"), 4).split("\n")
    assert where == f"line 1, column {query.index('FORM') + 1}"
    assert len(text) < 120
    assert text[caret.index("^") : caret.rindex("^") + 1] == "FORM"


def test_a_caret_stands_under_wide_characters() -> None:
    _, _, caret = excerpt("SELECT '数据' x", 12, 1).split("\n")
    assert caret == "    " + " " * 14 + "^"


def test_the_place_at_the_end_of_the_query() -> None:
    assert excerpt("SELECT", 6).split("\n")[1:] == ["    SELECT", "          ^"]
