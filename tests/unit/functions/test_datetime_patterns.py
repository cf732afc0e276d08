"""Datetime patterns without Spark: what is written is read again, and columns are read as single texts are."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import seed
from penstock.functions.scalars import datetime_format, datetime_layout, datetime_parse, time_text, zone_ids
from penstock.functions.scalars.datetime_pattern import PatternError, parts_of
from penstock.functions.scalars.datetime_resolve import Unparsable
from twin.zones import no_zones_known

PATTERNS = [
    "yyyy-MM-dd",
    "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "yyyy-MM-dd'T'HH:mm:ssXXX",
    "yyyyMMddHHmmss",
    "dd MMM yyyy",
    "d/M/y h:mm a",
    "MMMM d, yyyy",
    "HHmmssSSS",
    "yyyy D",
    "HH:mm:ssXX",
]
EDITS = ["", "0", "1", "-", "+", ":", "Z", "a", " ", "M", "é"]


def _alone(parser: datetime_parse.Parser, text: str, zone: str) -> int | None:
    """A text as the parser reads it without short cuts."""
    try:
        return replace(parser, layout=None, common=None).instant(text, zone)
    except (datetime_parse.Overflow, Unparsable):
        return None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_short_cuts_read_what_the_rules_read(pattern: str) -> None:
    rng = random.Random(seed.SEED)
    micros = np.array([rng.randrange(-(10**17), 10**17) for _ in range(300)])
    texts = datetime_format.written(parts_of(pattern, parsing=False), micros, "+02:00", 17).to_pylist()
    for index, text in enumerate(texts):
        at = rng.randrange(len(text))
        if rng.random() < 0.7:
            texts[index] = text[:at] + rng.choice(EDITS) + text[at + rng.randrange(2) :]
    parser = datetime_parse.parser_of(parts_of(pattern, parsing=True))
    instants, plain = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    if parser.layout is not None:
        local, offset, plain = datetime_layout.read(parser.layout, pa.array(texts, pa.large_string()))
        instants = time_text.instants(local, offset, "+02:00")
    for row, text in enumerate(texts):
        expected = _alone(parser, text, "+02:00")
        if plain[row]:
            assert instants[row] == expected, text
        try:
            single = parser.instant(text, "+02:00")
        except (datetime_parse.Overflow, Unparsable):
            single = None
        assert single == expected, text


def test_what_is_written_is_read_again() -> None:
    rng = random.Random(seed.SEED)
    parts = {parsing: parts_of("yyyy-MM-dd HH:mm:ss.SSSSSS", parsing=parsing) for parsing in (False, True)}
    micros = np.array([rng.randrange(-(10**18), 10**18) for _ in range(500)])
    texts = datetime_format.written(parts[False], micros, "UTC", 17).to_pylist()
    parser = datetime_parse.parser_of(parts[True])
    assert [parser.instant(text, "UTC") for text in texts] == micros.tolist()


@pytest.mark.parametrize(
    "pattern", ["Y", "ddd", "]", "{", "'open", "EEEEE", "yyyyyyy", "SSSSSSSSSS", "VV VVV"]
)
def test_patterns_that_spark_refuses_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        parts_of(pattern, parsing=False)


def test_a_table_of_zones_is_laid_out_year_by_year() -> None:
    with no_zones_known():
        rules = "3,-1,7,3600,0,3600,3600,7200 10,-1,7,3600,0,3600,7200,3600 "
        zone_ids.learn((), zone_ids.pack(f"Test/One,Test/Two 3600;323830800 7200 ;{rules}\nTST =Test/One\n"))
        assert zone_ids.resolve("Test/Two") == "Test/Two"
        assert zone_ids.resolve("TST") == "Test/One"
        assert zone_ids.resolve("Test/Three") is None
        assert time_text.moment_of("2024-07-01 12:00:00 Test/Two", "UTC", 0) == 1_719_828_000_000_000
        assert time_text.moment_of("2024-12-01 12:00:00TST", "UTC", 0) == 1_733_050_800_000_000
        assert time_text.moment_of("2024-12-01 12:00:00 Test/Three", "UTC", 0) is None
