"""URLs in parts, without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.scalars.base import BeyondKernel
from penstock.functions.scalars.urls import Url, parse


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", Url(path="")),
        ("a/b?c", Url(path="a/b", query="c")),
        ("http://h", Url("http", "h", None, "h", "")),
        ("http://h?", Url("http", "h", None, "h", "", "")),
        ("HTTP://u:p@1.2.3.4:80/x;y?a=1&b=[2]#f", Url("HTTP", "u:p@1.2.3.4:80", "u:p", "1.2.3.4", "/x;y", "a=1&b=[2]", "f")),
        ("//h.example./x", Url(None, "h.example.", None, "h.example.", "/x")),
        ("file:///x", Url("file", path="/x")),
        ("http://a_b/x", Url("http", "a_b", path="/x")),
        ("http://h:x/", Url("http", "h:x", path="/")),
        ("http://h:/", Url("http", "h:", None, "h", "/")),
        ("http://256.1.1.1/", Url("http", "256.1.1.1", path="/")),
        ("mailto:me@h?x#y", Url("mailto", fragment="y")),
        ("http://", None),
        ("http:", None),
        (":x", None),
        ("1a:x", None),
        ("http://a b", None),
        ("http://h/%zz", None),
        ("http://h/a|b", None),
        ("http://h/#a#b", None),
        ("http://h/[x]", None),
    ],
)  # fmt: skip
def test_parts(text: str, url: Url | None) -> None:
    assert parse(text) == url


@pytest.mark.parametrize("text", ["http://é/", "http://[::1]/", "http://a..b/", "http://1.2.3.0004/"])
def test_what_is_left_to_spark(text: str) -> None:
    with pytest.raises(BeyondKernel):
        parse(text)


_WORD = st.text("abcXYZ019-_.~", min_size=1)


@settings(deadline=None)
@given(st.sampled_from(["http", "ftp", "a+b"]), st.from_regex(r"\A[a-z]+(\.[a-z]+)*\Z"), _WORD, _WORD, _WORD)
def test_parts_make_the_url(scheme: str, host: str, path: str, query: str, fragment: str) -> None:
    url = parse(f"{scheme}://{host}/{path}?{query}#{fragment}")
    assert url == Url(scheme, host, None, host, f"/{path}", query, fragment)
    assert url is not None
    assert url.file == f"/{path}?{query}"
