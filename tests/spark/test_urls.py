"""parse_url and try_parse_url against Spark: usual URLs, odd ones, and ones put together by chance."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.functions.scalars.base import BeyondKernel
from penstock.functions.scalars.urls import parse
from seed import SEED
from twin.judge import Judge, Table
from twin.ticked import differences

PARTS = ["HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "host", ""]
URLS = [
    None, "", "http://a.example.com/p/q?k=1&l=2#top", "https://me:pw@a.example.com:8443/?k=%20x", "ftp://1.2.3.4/x", "http://256.1.1.1/", "http://1.2.3/", "http://1.2.3.4.5/", "http://1/",
    "http://1a.b1/", "http://a.1b/", "http://a-.b/", "http://-a.b/", "http://a_b.c/", "http://h:80", "http://h:", "http://h:x/", "http://h:99999999999/", "http://h:2147483648/",
    "http://u@/x", "http://@h/x", "http://u@v@h/x", "http://u:p@h", "http://%41/x", "http://u%41@h/x", "http:///x", "http://", "http:", "http:/x", "http:x", "//h/x", "///x", "//", "?q", "#f", "?", "#", "x", "/x",
    "a:b:c", "a/b:c", ":x", "1a:x", "a+b-c.d://h", "mailto:me@h.example?subject=x#f", "urn:a:b%zz", "http://h/%zz", "http://h/%4", "http://h/a b", "http://h/a|b", "http://h/{x}", "http://h/\\x",
    "http://h/?a[0]=1&b=2", "http://h/[x]", "http://h/#a#b", "http://h?x?y", "http://h/;p=1?q;r", "http://h?k=1&k=2&kk=3&=4&k", "http://h/\t", "http://h/\x00", "http://h/^", "http://h/`", "http://h/\"x\"", "HTTP://H.EXAMPLE/",
    "http://h.example./", "http://h/~a!b*c'(d)", "http://a,b;c=d&e$f/", "jdbc:postgresql://h:5432/db?user=x", "inva lid://h/p?q=1", "http://h//x//y", "http://h/..", "http://h/?", "http://h/#", "http://?q", "http://#f", "a:#f", "a:/#f",
]  # fmt: skip
ODD = ["http://é.example/ü?ö#ä", "http://[::1]:80/x", "http://[::1%25eth0]/", "http://a..b/", "http://1.2.3.0004/", "http://1.2.3.4./", "http://h/\u00a0", "http://[x", "http://x]y/", "http://h/😀"]  # fmt: skip
KEYS = ["k", "l", "", "k.", "(k)", "a", "K", "=", "q"]


def _random_url(chance: Random) -> str:
    text = "".join(
        chance.choice(["http", "://", "a", ".", "b-", "1", ":", "8", "/", "?", "#", "@", "%41", "k=", "&", "_", "x", "%", " ", ";", ",", "$", "~", "-", "255", "a.b"])
        for _ in range(chance.randrange(1, 14))
    )  # fmt: skip
    return chance.choice(["http://", "http://h/", "", "//", "a:"]) + text


def _known(urls: list[str]) -> list[str]:
    """Without those that Spark is asked for."""
    known = []
    for url in urls:
        try:
            parse(url)
        except BeyondKernel:
            continue
        known.append(url)
    return known


def test_parts_of_urls(spark: SparkSession) -> None:
    print(f"seed {SEED}")
    chance = Random(SEED)
    urls = [*URLS, *_known([_random_url(chance) for _ in range(3000)])]
    calls = [f"try_parse_url(u, '{part}')" for part in PARTS]
    calls += [f"try_parse_url(u, 'QUERY', '{key}')" for key in KEYS]
    calls.append("try_parse_url(u, 'HOST', 'k')")
    judge = Judge(spark, {"u": ("string", urls)}, calls)
    assert {call: wrong for index, call in enumerate(calls) if (wrong := judge.differences(index))} == {}
    # Most of them are URLs of one kind or another.
    assert sum(parse(url) is not None for url in urls if url is not None) > len(urls) // 3


def test_rows_that_come_and_go(session: ps.Session) -> None:
    chance = Random(SEED)
    urls = [*URLS[:20], *ODD]
    table: Table = {
        "u": ("string", urls),
        "p": ("string", [chance.choice([None, *PARTS]) for _ in urls]),
        "k": ("string", [chance.choice([None, *KEYS, "(?<x>k)", "\\p{L}"]) for _ in urls]),
    }
    query = (
        "SELECT id, try_parse_url(u, p) AS a, try_parse_url(u, 'QUERY', k) AS b, try_parse_url(u, p, k) AS c, "
        "try_parse_url(u, 'HOST') AS h FROM t"
    )
    assert differences(session, query, table, chance) == []


@pytest.mark.parametrize("call", ["parse_url(u, 'HOST')", "parse_url(u, 'x')", "parse_url(u, 'HOST', 'k')", "parse_url(u, 'QUERY', 'k')"])  # fmt: skip
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_what_is_no_url_is_refused_alike(session: ps.Session, call: str, ansi: str) -> None:
    table: Table = {"u": ("string", ["http://h/?k=1", "http://a b/", None, "http://é/"])}
    before = session.spark.conf.get("spark.sql.ansi.enabled")
    session.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = differences(session, f"SELECT id, {call} AS e FROM t", table, Random(1), ticks=2)
    finally:
        session.spark.conf.set("spark.sql.ansi.enabled", str(before))
    assert found == []


def test_they_are_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "u STRING")
    query = "SELECT parse_url(u, 'HOST') AS h, try_parse_url(u, 'QUERY', 'k') AS k FROM t WHERE try_parse_url(u, 'PATH') <> '/'"
    assert flow.register_view("v", query).tier == "kernel", str(flow.explain("v"))
