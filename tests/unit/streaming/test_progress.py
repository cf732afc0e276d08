"""Progress in our words."""

from __future__ import annotations

from penstock.streaming.progress import from_spark

SPARK_PROGRESS = {
    "batchId": 3,
    "numInputRows": 10,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "durationMs": {"triggerExecution": 500, "addBatch": 300},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 2, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 3, "memoryUsedBytes": 50, "numRowsDroppedByWatermark": 4},
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[orders]]",
            "numInputRows": 10,
            "startOffset": {"orders": {"0": 0}},
            "endOffset": {"orders": {"0": 10}},
            "latestOffset": {"orders": {"0": 15, "1": 4}},
        },
        {
            "description": "FileStreamSource",
            "numInputRows": 0,
            "endOffset": {"logOffset": 1},
            "latestOffset": None,
        },
    ],
}


def test_sums_over_operators_and_lag_of_sources() -> None:
    made = from_spark(SPARK_PROGRESS, trigger="processing_time(0)", output_rows=7)
    assert (made.batch_id, made.input_rows, made.output_rows, made.duration_ms) == (3, 10, 7, 500)
    assert (made.state_rows, made.state_bytes, made.late_rows) == (5, 150, 5)
    assert made.input_rows_per_second == 20.0
    assert [source.lag for source in made.sources] == [9, None]
    assert made.sources[0].lag_by_partition == {"orders-0": 5, "orders-1": 4}
    assert made.lag == 9
