"""What the author of a plugin runs against it: the contract, without Spark.

    from penstock.testing import check_transform, run_transform

    def test_the_contract():
        check_transform(Upper, {"column": "name"}, schema="id BIGINT, name STRING")

    def test_what_it_does():
        assert run_transform(Upper, {"column": "name"}, [{"id": 1, "name": "a"}]) == [{"id": 1, "name": "A"}]

A check runs all its parts, and one AssertionError says what is wrong in each.
"""

from __future__ import annotations

from penstock.testing.function import check_function
from penstock.testing.preprocessor import check_preprocessor
from penstock.testing.rows import generated_batches
from penstock.testing.sink import check_sink
from penstock.testing.source import check_source
from penstock.testing.transform import check_transform, run_transform

__all__ = [
    "check_function",
    "check_preprocessor",
    "check_sink",
    "check_source",
    "check_transform",
    "generated_batches",
    "run_transform",
]
