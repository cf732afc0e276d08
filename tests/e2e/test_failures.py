"""A failure of the JVM is always heard: whoever waits gets what was thrown, soon after it was.

Each program has a process of its own, because the tests of tests/spark share one Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
BEGIN = """
import contextlib
import os
import signal
import threading
import time

import psutil
import pytest

import penstock as ps
from penstock.spark import arrow_stream
from penstock.spark.boot import gateway, janino
from penstock.spark.errors import translate
from pyspark.core import rdd as pyspark_rdd
from pyspark.serializers import NoOpSerializer

ENDLESS = "SELECT count(*) FROM range(0, 10000000000000L, 1, 4) WHERE id % 7 = 3"


def faults(session):
    return janino.instance(session.spark, "faulty", "Faults")


def caught(action):
    with pytest.raises(Exception) as info:
        action()
    return translate(info.value)


def jvm():
    [one] = gateway._living
    return one.process.pid


def served(session, count, how):
    # What `collect()` does with rows that a thread of the JVM sends.
    server = session.spark._jvm.PythonRDD.serveIterator(faults(session).elements(count, how), "serve faults")
    return list(pyspark_rdd._load_from_socket(server, NoOpSerializer()))


def running(session):
    # Somebody waits for a job of this Spark.
    while not session.spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)
"""


def run(program: str, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program + '\nprint("all well")'],
        capture_output=True,
        text=True,
        timeout=290,
        cwd=folder,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            **environment,
        },
    )
    assert done.stdout.endswith("all well\n"), done.stdout + done.stderr[-4000:]


def test_a_thread_that_dies_while_it_serves_a_result_is_heard(tmp_path: Path) -> None:
    run(
        """
with ps.Session.embedded(master="local[2]") as session:
    ways = {
        "toArrow": lambda: session.sql("SELECT 1").toArrow(),
        "toPandas": lambda: session.sql("SELECT 1").toPandas(),
        "collect": lambda: session.sql("SELECT 1").collect(),
        "toLocalIterator": lambda: list(session.sql("SELECT 1").toLocalIterator()),
        "stream": lambda: list(arrow_stream.stream(session.sql("SELECT 1"))[1]),
        "submit": lambda: session.submit("SELECT 1").result(),
        "timeout": lambda: session.sql_with_timeout("SELECT 1", 600_000),
    }
    said = {
        "class": ("SQL_SPARK", "this class does not initialise"),
        "memory": ("SPARK_OUT_OF_MEMORY", "java.lang.OutOfMemoryError: Java heap space"),
        "stack": ("SQL_SPARK", "java.lang.StackOverflowError"),
    }
    for how, (code, words) in said.items():
        faults(session).optimize(session.spark._jsparkSession, how)
        for way, action in ways.items():
            error = caught(action)
            assert (error.code, words in error.message) == (code, True), (how, way, error)
            if how == "class":
                assert "NoClassDefFoundError" in error.message or "ExceptionInInitializerError" in error.message
            if how == "memory":
                assert "spark.driver.memory" in error.hint
        faults(session).optimize(session.spark._jsparkSession, "")
        assert session.sql("SELECT 2 AS two").toArrow().to_pylist() == [{"two": 2}]
    for how, (code, words) in said.items():
        error = caught(lambda: served(session, 3, how))
        assert (error.code, words in error.message) == (code, True), (how, error)
""",
        tmp_path,
    )


def test_a_heap_that_is_full_is_heard_and_the_session_goes_on(tmp_path: Path) -> None:
    run(
        """
with ps.Session.embedded(master="local[2]", conf={"spark.driver.memory": "600m"}) as session:
    # In the thread that serves, and in a task: one row that is larger than the heap.
    faults(session).optimize(session.spark._jsparkSession, "heap")
    error = caught(lambda: session.sql("SELECT 1").toArrow())
    assert error.code == "SPARK_OUT_OF_MEMORY" and "OutOfMemoryError" in error.message, error
    faults(session).optimize(session.spark._jsparkSession, "")
    for way in ("toArrow", "collect"):
        error = caught(lambda: getattr(session.sql("SELECT repeat('x', 100000000 + cast(id AS INT)) FROM range(1)"
            " LATERAL VIEW explode(array(concat(repeat('x', 400000000), id))) AS y"), way)())
        assert error.code == "SPARK_OUT_OF_MEMORY" and "spark.driver.memory" in error.hint, error
        assert "OutOfMemoryError" in error.message, error
    assert session.sql("SELECT 2 AS two").toArrow().to_pylist() == [{"two": 2}]
""",
        tmp_path,
    )


WAITS = {
    "toArrow": "session.sql(ENDLESS).toArrow()",
    "collect": "session.sql(ENDLESS).collect()",
    "toLocalIterator": "list(session.sql(ENDLESS).toLocalIterator())",
    "submit": "session.submit(ENDLESS).result()",
    "stream": """(
        session.read_stream.rate(rows_per_second=100).write_stream.format("memory").start().await_termination()
    )""",
    "foreach_batch": """(
        session.read_stream.rate(rows_per_second=100)
        .write_stream.foreach_batch(lambda frame, number: session.sql(ENDLESS).collect())
        .start()
        .await_termination()
    )""",
}


def test_a_killed_jvm_is_heard_by_whoever_waits(tmp_path: Path) -> None:
    ways = ", ".join(f"{name!r}: lambda session: {wait}" for name, wait in WAITS.items())
    run(
        f"""
def kill(session):
    running(session)
    os.kill(jvm(), signal.SIGKILL)


# Each in a session of its own, one after the other: the process gets over the end of a JVM, too.
for way, wait in {{{ways}}}.items():
    with ps.Session.embedded(master="local[2]") as session:
        threading.Thread(target=kill, args=(session,)).start()
        error = caught(lambda: wait(session))  # which waits for ever, when nobody hears
        assert error.code == "SPARK_ENDED" and "SIGKILL" in error.message, (way, error)
""",
        tmp_path,
    )


def test_a_result_that_was_cut_off_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    run(
        """
with ps.Session.embedded(master="local[2]") as session:
    schema, batches = arrow_stream.stream(session.sql("SELECT id, repeat('x', 1000) FROM range(0, 600000, 1, 2)"))
    next(batches)
    os.kill(jvm(), signal.SIGKILL)
    error = caught(lambda: list(batches))
    assert error.code == "SPARK_ENDED" and "SIGKILL" in error.message, error
with ps.Session.embedded(master="local[2]") as session:
    server = session.spark._jvm.PythonRDD.serveIterator(faults(session).elements(3, ""), "serve faults")
    rows = pyspark_rdd._load_from_socket(server, NoOpSerializer())
    assert [len(next(rows)) for _ in range(2)] == [100000, 100000]  # what else there is waits for the buffer to be full
    os.kill(jvm(), signal.SIGKILL)
    error = caught(lambda: list(rows))
    assert error.code == "SPARK_ENDED" and "SIGKILL" in error.message, error
""",
        tmp_path,
    )


def test_a_thread_that_spark_needs_ends_the_jvm_with_what_was_thrown(tmp_path: Path) -> None:
    run(
        """
for how, code, words in (("class", "SPARK_ENDED", "java.lang.ExceptionInInitializerError"), ("memory", "SPARK_OUT_OF_MEMORY", "OutOfMemoryError")):
    with ps.Session.embedded(master="local[2]") as session:

        def die():
            running(session)
            with contextlib.suppress(Exception):
                faults(session).thread(how)

        threading.Thread(target=die).start()
        error = caught(lambda: session.sql(ENDLESS).toArrow())
        assert (error.code, words in error.message) == (code, True), error
""",
        tmp_path,
    )


def test_a_jvm_that_is_stopped_is_not_dead(tmp_path: Path) -> None:
    run(
        """
with ps.Session.embedded(master="local[2]") as session:
    stopped = psutil.Process(jvm())
    stopped.suspend()
    threading.Timer(3, stopped.resume).start()
    began = time.monotonic()
    assert session.sql("SELECT sum(id) AS s FROM range(1000)").toArrow().to_pylist() == [{"s": 499500}]
    assert time.monotonic() - began > 2
""",
        tmp_path,
    )


def test_a_jvm_that_ends_before_spark_is_up_is_heard(tmp_path: Path) -> None:
    run(
        """
from penstock.spark.boot import pyspark_session

make = pyspark_session.session

def killed(running, conf):
    os.kill(running.process.pid, signal.SIGKILL)
    return make(running, conf)

pyspark_session.session = killed
with pytest.raises(ps.PenstockError) as info:
    ps.Session.embedded(master="local[2]")
assert info.value.code == "JVM_START", info.value
""",
        tmp_path,
    )
