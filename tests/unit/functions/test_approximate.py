"""Marks and estimates of approx_count_distinct, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.functions.aggregates.approximate import Estimator, marks
from penstock.functions.scalars.hashes import XXHASH, hashed
from penstock.operators.aggregate import Aggregate
from penstock.plan.node import AggregateCall


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(4, 20))
def test_a_mark_is_a_register_and_a_place(values: list[int], precision: int) -> None:
    column = pa.array(values, pa.int64())
    found = marks(column, precision).tolist()
    hashes = hashed(XXHASH, [column], 42, len(values)).view(np.uint64).tolist()
    for mark, word in zip(found, hashes, strict=True):
        bits = format(word, "064b")
        rest = bits[precision:] + "1"
        assert divmod(mark, 64) == (int(bits[:precision], 2), rest.index("1") + 1)


@pytest.mark.parametrize("precision", [4, 9, 14])
def test_few_values_are_counted_by_empty_registers(precision: int) -> None:
    estimator = Estimator(precision, [], [], 2.5 * 2**precision)
    count = 1 << precision
    assert estimator.estimate(float(count), count) == 0
    assert estimator.estimate(count - 0.5, count - 1) == 1
    assert estimator.estimate(count - 1.0, count - 2) == 2


def test_the_bias_of_the_nearest_estimates_is_taken_off() -> None:
    known = [float(10 * number) for number in range(20)]
    estimator = Estimator(4, known, [float(number) for number in range(20)], 0.0)
    # 0.673 * 16 * 16 / 3 is 57.4; next to it are those from 30 to 80.
    assert estimator.estimate(3.0, 0) == round(57.4 - (3 + 4 + 5 + 6 + 7 + 8) / 6)
    # Large ones are plain.
    assert estimator.estimate(2.0, 0) == round(86.144)


def test_what_goes_again_leaves_no_trace() -> None:
    options = (("precision", 9), ("threshold", "400.0"))
    call = AggregateCall("HyperLogLogPlusPlus", (0,), "bigint", options=options)
    values = pa.array([*range(300), None], pa.int64())

    def estimate(operator: Aggregate, column: pa.Array, weight: int) -> int:
        operator.step([Delta((column,), np.full(len(column), weight, np.int64))], Tick(1, 0))
        operator.commit()
        return int(operator.contents().columns[0][0].as_py())

    def fresh(column: pa.Array) -> int:
        return estimate(Aggregate([pa.int64()], [], [call]), column, 1)

    operator = Aggregate([pa.int64()], [], [call])
    whole = estimate(operator, values, 1)
    assert abs(whole - 300) < 30
    assert estimate(operator, values, 1) == whole
    assert estimate(operator, values.slice(10), -1) == whole
    assert estimate(operator, values.slice(10), -1) == fresh(values.slice(0, 10))
    assert estimate(operator, values.slice(0, 10), -2) == 0
