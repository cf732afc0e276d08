from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.errors import StateError
from penstock.spark.errors import translate


@pytest.mark.parametrize(
    "lost",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError("[Errno 111] Connection refused"),
        BrokenPipeError("[Errno 32] Broken pipe"),
        Py4JError("An error occurred while calling o123.getResult"),
        Py4JError("An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob"),
    ],
)
def test_a_jvm_that_is_gone_is_reported_in_the_same_words_wherever_it_is_noticed(lost: Exception) -> None:
    translated = translate(lost, sql="SELECT 1")
    assert isinstance(translated, StateError)
    assert (translated.code, translated.message) == ("SPARK_ENDED", "Spark has ended")
    assert "spark.driver.memory" in (translated.hint or "")


def test_an_answer_with_a_java_trace_is_not_a_lost_connection() -> None:
    error = Py4JError(
        "An error occurred while calling o1.nothing. Trace:\npy4j.Py4JException: no such method"
    )
    assert translate(error).code != "SPARK_ENDED"
