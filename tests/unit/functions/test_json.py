"""JSON without Spark: both ways to read a text agree wherever both may be asked."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.functions.json import convert, path, tree
from penstock.functions.json.reader import Leniency
from penstock.functions.scalars.base import BeyondKernel
from penstock.functions.scalars.hashes import MURMUR, XXHASH, Algorithm, hashed
from seed import SEED
from twin import json_text

RULES = convert.JsonRules(Leniency(), True, 17, lambda text: None)
PATHS = ["$", "$.a", "$.b.c", "$.a[0]", "$.a[*]", "$.a[*].b", "$.a[*][*]", "$[*]", "$['x y']", "$.a[*][0][*]"]
KINDS = [
    "struct<a:int,b:string,c:array<int>,d:struct<a:double,b:decimal(10,2)>>",
    "map<string,string>",
    "array<struct<a:bigint,b:boolean>>",
    "struct<a:map<string,int>,b:tinyint,c:float,d:boolean>",
]


def test_a_tree_and_its_tokens_give_the_same() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    asked = 0
    for _ in range(3000):
        text = json_text.text(rng)
        try:
            value = tree.parse(text)
        except tree.NotOrdinary:
            continue
        asked += 1
        steps = path.parse(rng.choice(PATHS))
        assert steps is not None
        assert path._find_in_tree(value, steps, 17) == path._find_by_token(text, steps, 17), text
        kind = rng.choice(KINDS)
        try:
            converted = convert.from_tree(kind, RULES)(value)
        except convert.Bad:
            continue
        assert repr(convert._root(kind, RULES)(text)) == repr(convert.ConvertedRecord(converted)), text
    assert asked > 500


def test_what_follows_an_error_depends_on_what_was_consumed() -> None:
    read = convert.converter("struct<a:array<int>,b:int>", RULES)
    assert read('{"a":[1.,2],"b":3}').value == {"a": None, "b": 3}
    assert read('{"a":[0.,2],"b":3}').value == {"a": None, "b": None}
    assert read('{"a":[tru,1],"b":2}').value == {"a": None, "b": 2}


@pytest.mark.parametrize("algorithm", [MURMUR, XXHASH], ids=["murmur3", "xxhash64"])
def test_hashes_of_slices_and_of_nothing(algorithm: Algorithm) -> None:
    texts = pa.array(
        ["x", None, "abc", "longer than thirty-two bytes, and not by little", ""], pa.large_string()
    )
    lists = pa.array([["x"], None, ["abc", None], [], ["d"]], pa.large_list(pa.large_string()))
    whole = hashed(algorithm, [texts, lists], 42, 5).tolist()
    assert hashed(algorithm, [texts.slice(1, 3), lists.slice(1, 3)], 42, 3).tolist() == whole[1:4]
    assert hashed(algorithm, [texts.slice(0, 0), lists.slice(0, 0)], 42, 0).tolist() == []
    assert whole[1] == 42


def test_moments_are_read_by_a_format_or_are_seconds() -> None:
    moments = {"2024": 7, "old": None}
    rules = convert.JsonRules(Leniency(), partial=True, java=17, date=lambda text: None, moment=moments.get)
    converted = convert.converter("struct<a:timestamp,b:int>", rules)
    assert converted('{"a": "2024", "b": 1}') == convert.ConvertedRecord({"a": 7, "b": 1})
    assert converted('{"a": -3}') == convert.ConvertedRecord({"a": -3_000_000, "b": None})
    assert converted('{"a": "old", "b": 1}').value == {"a": None, "b": 1}
    assert converted('{"a": 1.5}').bad is not None
    with pytest.raises(BeyondKernel):
        converted('{"a": 99999999999999}')
