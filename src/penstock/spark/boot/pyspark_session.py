"""PySpark's side of a JVM that we started: making its session there, and forgetting it afterwards."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING

from penstock.spark.boot import converters, gateway, interrupt, preload, py4j_log

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession


# Whether an earlier JVM of this process is gone.
_ended: list[bool] = []


def session(
    jvm: gateway.Jvm, conf: Mapping[str, str], *, seconds: float = gateway.HANDSHAKE_SECONDS
) -> SparkSession:
    """Make PySpark's session in that JVM; PySpark is imported while the JVM boots."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    converters.lighten()
    py4j_log.silence()
    os.environ["PYSPARK_PYTHON"] = jvm.launch.environment["PYSPARK_PYTHON"]
    if _ended:
        _renew_functions()
    java = gateway.connect(jvm, seconds=seconds)
    preload.begin(java)
    SparkContext._gateway, SparkContext._jvm = java, java.jvm
    spark_conf = SparkConf(_jvm=java.jvm)
    submitted = jvm.launch.submit or {}
    spark_conf.setAll([(key, value) for key, value in conf.items() if submitted.get(key) != value])
    with interrupt.handler_kept():
        context = SparkContext(conf=spark_conf)
    interrupt.install(context)
    return SparkSession(context)


def take(spark: SparkSession) -> None:
    """Make a session that another thread has made that of this thread, as its maker's it is."""
    from pyspark.sql import SparkSession

    assert spark._jvm is not None
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    interrupt.install(spark.sparkContext)


def release(*, seconds: float = 1.0) -> bool:
    """Let calls into the JVM come to their end before it is killed; return whether all did.

    A call that is cut off prints a trace of its own, and may be somebody's wait for a stream.
    """
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
    from pyspark import SparkContext

    interrupt.uninstall()
    if SparkContext._gateway is not None:
        garbage = SparkContext._gateway._gateway_client.finalizer_deque
        garbage.clear()
        garbage.append(SHUTDOWN_FINALIZER_WORKER)
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        # Its connection is about to break, which is no error worth printing.
        server.server_shutdown = True
        server.handle_error = lambda *_: None
    deadline = time.monotonic() + seconds
    while _calls():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def end(spark: SparkSession) -> None:
    """Stop Spark inside its JVM: jobs, streams, event logs, applications on a cluster."""
    if spark._sc._jsc is not None:
        with contextlib.suppress(Exception):  # the JVM may be gone or going
            spark._sc._jsc.stop()


def forget() -> None:
    """Clear what PySpark remembers of the JVM, so that the next start finds a clean house."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    interrupt.uninstall()
    _ended.append(True)
    context, java = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._jsc = None
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            # Its loop notices only every half second: nobody needs to wait for that.
            threading.Thread(target=_close_server, args=(server,), daemon=True).start()
            del context._accumulatorServer
    if java is not None:
        with contextlib.suppress(Exception):  # the JVM is gone
            java.close()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _calls() -> int:
    """How many other threads wait for an answer of the JVM."""
    here = threading.get_ident()
    count = 0
    for thread, top in sys._current_frames().items():
        frame: FrameType | None = top if thread != here else None
        while frame is not None:
            if frame.f_code.co_name == "send_command" and "py4j" in frame.f_code.co_filename:
                count += 1
                break
            frame = frame.f_back
    return count


def _renew_functions() -> None:
    """Let Python functions that were made for an earlier JVM be used in the next one.

    They remember their Java counterpart, which PySpark takes for valid as long as the process lives.
    """
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.sql.udtf import UserDefinedTableFunction

    for thing in gc.get_objects():
        if isinstance(thing, UserDefinedFunction):
            thing._judf_placeholder = None
        elif isinstance(thing, UserDefinedTableFunction):
            thing._judtf_placeholder = None


def _close_server(server: BaseServer) -> None:
    with contextlib.suppress(Exception):  # its socket may be gone with the JVM's folder
        server.shutdown()
        server.server_close()
