"""Start and stop the PySpark session of this process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark import archive, attach, gateway, ml
from penstock.spark.classpath import class_path, spark_home
from penstock.spark.defaults import effective, is_local
from penstock.spark.java import find_java
from penstock.spark.options import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG4J = Path(__file__).with_name("log4j2.properties")
# With one of these, spark-submit's own code must prepare the driver: it fetches, distributes and logs in.
SUBMIT_KEYS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.submit.pyFiles",
    "spark.kerberos.keytab",
    "spark.kerberos.principal",
)
# With one of these, something waits for a proper end of Spark.
ORDERLY_KEYS = ("spark.eventLog.enabled", "spark.extraListeners", "spark.plugins", "spark.local.dir")
# A Unix socket's path has at most 107 bytes; Spark adds 42 to the folder's.
SOCKET_FOLDER_LENGTH = 64
# Set to false, no class archive is used or made.
ARCHIVE_KEY = "spark.penstock.archive"
HIVE = ("spark.sql.catalogImplementation", "hive")


@dataclass(slots=True)
class _Running:
    """Our JVM, its session, and how many callers of `start` have not called `stop`."""

    jvm: gateway.Jvm
    spark: SparkSession
    orderly: bool
    users: int = 1


_lock = threading.RLock()
_running: _Running | None = None


def start(
    settings: Settings,
    *,
    app_name: str = "penstock",
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a running PySpark session with penstock's defaults and the user's settings on top.

    `jars` go on the class path and `conf` below the user's settings: what connectors and catalogs need. A session
    that already runs in this process is returned again, with the settings that can change while it runs.
    """
    global _running
    with _lock:
        alive = _alive(settings, jars, conf or {})
        if alive is not None:
            return alive
        items = {key: item.value for key, item in effective(settings, conf=conf).items()}
        items.setdefault("spark.app.name", app_name)
        _running = _launch(settings, items, jars)
        return _running.spark


def stop(spark: SparkSession) -> None:
    """Give back a session of `start`; the last one to do so ends Spark and its JVM.

    A session that someone else started (plain PySpark, spark-submit) is left alone.
    """
    global _running
    with _lock:
        if _running is None or spark is not _running.spark:
            return
        _running.users -= 1
        if _running.users <= 0:
            ended, _running = _running, None
            _end(ended)


def add_jars(spark: SparkSession, jars: Sequence[Path]) -> None:
    """Make more jars known to a session that runs already."""
    for jar in jars:
        spark._jsparkSession.sessionState().resourceLoader().addJar(str(jar))


def _alive(settings: Settings, jars: Sequence[Path], conf: Mapping[str, str]) -> SparkSession | None:
    """The session that this process has already, ours or another's."""
    global _running
    if _running is not None and (_running.spark._sc._jsc is None or not _running.jvm.alive):
        # Stopped behind our back: by spark.stop(), or the JVM died.
        ended, _running = _running, None
        _end(ended)
    wanted = {**conf, **settings.conf}
    if settings.master:
        wanted["spark.master"] = settings.master
    if _running is not None:
        missing = [jar for jar in jars if jar not in _running.jvm.launch.class_path.after]
        _adapt(_running.spark, wanted, missing)
        _running.users += 1
        return _running.spark
    if not _foreign():
        return None
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.config(map={**wanted}).getOrCreate()
    _adapt(spark, wanted, list(jars))
    return spark


def _foreign() -> bool:
    """Whether this process has a Spark that we did not start: plain PySpark's, or spark-submit's."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._active_spark_context is not None


def _adapt(spark: SparkSession, wanted: Mapping[str, str], jars: Sequence[Path]) -> None:
    """Give a running session the settings that can still change; the others must be as they are."""
    from pyspark.errors import PySparkException

    old: dict[str, str | None] = {}
    fixed: list[str] = []
    for key, value in wanted.items():
        before = spark.conf.get(key, None)
        if before == value:
            continue
        try:
            spark.conf.set(key, value)
        except PySparkException:
            fixed.append(f"{key} is {before!r}, asked for {value!r}")
        else:
            old[key] = before
    if fixed:
        for key, before in old.items():
            spark.conf.unset(key) if before is None else spark.conf.set(key, before)
        raise ConfigError(
            "a Spark session is running in this process and these settings cannot change while it runs: "
            + "; ".join(fixed),
            code="SESSION_STATIC_CONF",
            hint="stop the running session first, or leave these settings out",
        )
    add_jars(spark, jars)


def _launch(settings: Settings, conf: dict[str, str], jars: Sequence[Path]) -> _Running:
    home = spark_home()
    local = is_local(conf["spark.master"])
    orderly = not local or any(map(conf.get, ORDERLY_KEYS)) or conf.get(HIVE[0]) == HIVE[1]
    submit = not local or any(map(conf.get, SUBMIT_KEYS))
    path = class_path(home, conf, jars=jars, folders=settings.conf_folders)
    own_log = any((folder / LOG4J.name).is_file() for folder in settings.conf_folders)
    launch = gateway.Launch(
        java=find_java(settings),
        class_path=path,
        options=java_options(conf, log4j=None if own_log else LOG4J),
        submit=conf if submit else None,
        environment=gateway.python_environment(local=local, spark_home=home),
    )
    plain = not submit and not path.before
    lean = plain and not (conf.get("spark.plugins") or ml.imported() or ml.brings_extensions(jars))
    if lean:
        conf.setdefault(ml.LOAD_KEY, "false")
    jvm, spark = _boot(settings, launch, conf, own_scratch=not orderly, archived=plain)
    if lean:
        ml.register_on_import(spark)
    return _Running(jvm, spark, orderly)


def _boot(
    settings: Settings, launch: gateway.Launch, conf: dict[str, str], *, own_scratch: bool, archived: bool
) -> tuple[gateway.Jvm, SparkSession]:
    """Start the JVM, with the class archive when there is one, and a session in it."""
    place = quick = None
    if archived and conf.get(ARCHIVE_KEY, "true") != "false":
        place = archive.locate(settings.home, launch.java, launch.class_path, launch.options)
        path = archive.usable(place, launch.class_path)
        quick = replace(launch, class_path=path, archive_options=archive.use(place)) if path else None
    if quick is not None and place is not None:
        try:
            return _session(settings, quick, conf, own_scratch=own_scratch)
        except gateway.JvmDied:
            # Most likely for another reason, which the second attempt will show; but no archive is worth a start.
            archive.discard(place)
    made = _session(settings, launch, conf, own_scratch=own_scratch)
    if place is not None:
        from penstock.spark import archive_build

        archive_build.start(place, launch, home=settings.home)
    return made


def _session(
    settings: Settings, launch: gateway.Launch, conf: Mapping[str, str], *, own_scratch: bool
) -> tuple[gateway.Jvm, SparkSession]:
    jvm = gateway.start(launch, home=settings.home)
    try:
        if own_scratch:
            conf = {**conf, "spark.local.dir": str(jvm.scratch.path)}
        if len(str(jvm.scratch.path)) > SOCKET_FOLDER_LENGTH:
            conf = {**conf, "spark.python.unix.domain.socket.enabled": "false"}
        return jvm, attach.session(jvm, conf)
    except BaseException:
        attach.forget()
        jvm.kill()
        raise


def _end(running: _Running) -> None:
    """End Spark and its JVM, at once when nobody waits for a proper end."""
    ml.forget()
    alive = running.jvm.alive
    waiting = alive and not attach.release(seconds=0.2)
    if alive and (running.orderly or waiting):
        attach.end(running.spark)
        attach.release()
    if running.orderly:
        running.jvm.end()
    else:
        running.jvm.kill()
    attach.forget()


def _at_exit() -> None:
    """No JVM outlives Python, whatever was forgotten."""
    global _running
    with _lock:
        if _running is not None:
            ended, _running = _running, None
            _end(ended)


atexit.register(_at_exit)
