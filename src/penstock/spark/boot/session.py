"""Start and stop the PySpark sessions of this process.

A process has one JVM and one Spark context. Sessions with other settings of SQL have a Spark session of their own in
it, with its own settings, catalogs and temporary views; sessions with the same settings share one.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import config
from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark import arrow_stream, pyspark_results
from penstock.spark.boot import archive, gateway, janino, loader, ml, pyspark_session, startup
from penstock.spark.boot.defaults import effective

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "spark.sql.extensions"
# A Unix socket's path has at most 107 bytes; Spark adds 42 to the folder's.
SOCKET_FOLDER_LENGTH = 64
JAVA = "java"
"""The folder in the home of penstock with Java classes that penstock has compiled."""


@dataclass(slots=True)
class _Running:
    """Our JVM, its Spark sessions, and those who use them."""

    jvm: gateway.Jvm
    spark: SparkSession
    """The first session, whose settings are those of the Spark context."""
    conf: Mapping[str, str]
    orderly: bool
    others: dict[frozenset[tuple[str, str]], SparkSession] = field(default_factory=dict)
    """Sessions with other settings of SQL, by these settings, as long as they have a user."""
    users: list[SparkSession] = field(default_factory=list)
    """The session of each caller of `start` that has not called `stop`."""


class _Prepared:
    """A JVM that boots, and in it the session of a plan, made in a thread of its own."""

    def __init__(self, jvm: gateway.Jvm, plan: startup.Startup) -> None:
        self.jvm = jvm
        self.plan = plan
        self._spark: SparkSession | None = None
        self._error: BaseException | None = None
        self._making = threading.Thread(target=self._make, name="penstock-session", daemon=True)
        self._making.start()

    def session(self) -> SparkSession:
        """Wait for the session, and make it that of the caller's thread; raises why there is none."""
        self._making.join()
        if self._error is not None:
            raise self._error
        assert self._spark is not None
        pyspark_session.take(self._spark)
        return self._spark

    def discard(self) -> None:
        """End the JVM, and with it whatever is being made there."""
        self.jvm.kill()
        self._making.join()
        pyspark_session.forget()

    def _make(self) -> None:
        try:
            self._spark = _session_in(self.jvm, self.plan)
        except BaseException as error:  # it belongs to whoever waits
            self._error = error


_lock = threading.RLock()
_running: _Running | None = None
_prepared: _Prepared | None = None


def prepare(settings: Settings) -> None:
    """Let the JVM boot, and Spark in it, while the caller still does other things; `start` with the same settings takes them.

    Only a command that will surely start a session gains by this.
    """
    global _prepared
    with _lock:
        if _running is None and _prepared is None and not _foreign():
            plan = startup.decide(settings)
            _prepared = _Prepared(gateway.start(plan.quick or plan.launch, home=settings.home), plan)


def start(
    settings: Settings,
    *,
    app_name: str = "penstock",
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a running PySpark session with penstock's defaults and the user's settings on top.

    `jars` go on the class path and `conf` below the user's settings: what connectors and catalogs need. When Spark runs in this
    process already, it is a session of that Spark: an existing one with the same settings of SQL, or a new one.
    """
    global _running
    with _lock:
        alive = _alive(settings, jars, conf or {})
        if alive is not None:
            return alive
        plan = startup.decide(settings, app_name=app_name, jars=jars, conf=conf)
        jvm, spark = _boot(settings.home, plan)
        if plan.lean:
            ml.register_on_import(spark)
        _running = _Running(jvm, spark, plan.conf, plan.orderly, users=[spark])
        loader.send(spark, jars)
        _watch(spark, settings, ours=True)
        return spark


def stop(spark: SparkSession) -> None:
    """Give back a session of `start`; the last one to do so ends Spark and its JVM.

    A session that someone else started (plain PySpark, spark-submit) is left alone.
    """
    global _running
    with _lock:
        if _running is None or not _is_in(spark, _running.users):
            return
        users = _running.users
        del users[next(index for index, user in enumerate(users) if user is spark)]
        if not users:
            ended, _running = _running, None
            _end(ended)
        elif not _is_in(spark, users):
            others = _running.others
            _running.others = {key: other for key, other in others.items() if other is not spark}


def add_jars(spark: SparkSession, jars: Sequence[Path]) -> None:
    """Make more jars known to a session that runs already, in every thread."""
    if jars:
        loader.append(spark, jars)


def _alive(settings: Settings, jars: Sequence[Path], conf: Mapping[str, str]) -> SparkSession | None:
    """A session of the Spark that this process has already, ours or another's."""
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
        spark = _session_of(_running, settings, conf, wanted, missing)
        _running.users.append(spark)
        return spark
    if not _foreign():
        return None
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.config(map={**wanted}).getOrCreate()
    _adapt(spark, wanted, list(jars))
    _watch(spark, settings, ours=False)
    return spark


def _session_of(
    running: _Running,
    settings: Settings,
    conf: Mapping[str, str],
    wanted: Mapping[str, str],
    jars: Sequence[Path],
) -> SparkSession:
    """The session of a running Spark that has these settings of SQL; a new one when there is none."""
    own_master = replace(settings, master=settings.master or running.conf["spark.master"])
    items = {key: item.value for key, item in effective(own_master, conf=conf).items()}
    modifiable = _modifiable(running.spark, {*items, *running.conf})
    own = {key: items[key] for key in modifiable & items.keys()}
    first = {key: running.conf[key] for key in modifiable & running.conf.keys()}
    fixed = {key: value for key, value in wanted.items() if key not in modifiable}
    if own == first:
        _adapt(running.spark, fixed, jars)
        return running.spark
    key = frozenset(own.items())
    spark = running.others.get(key)
    if spark is not None:
        _adapt(spark, fixed, jars)
        return spark
    spark = running.spark.newSession()
    for name in first.keys() - own.keys():
        spark.conf.unset(name)
    _adapt(spark, {**own, **fixed}, jars)
    running.others[key] = spark
    return spark


def _watch(spark: SparkSession, settings: Settings, *, ours: bool) -> None:
    """Let nobody wait for a thread of this JVM that has died."""
    janino.use_folder(spark, settings.home / JAVA)
    janino.instance(spark, __package__, "Uncaught").install(ours)
    pyspark_results.install()
    arrow_stream.prepare(spark)


def _is_in(spark: SparkSession, sessions: Iterable[SparkSession]) -> bool:
    return any(session is spark for session in sessions)


def _modifiable(spark: SparkSession, keys: Iterable[str]) -> set[str]:
    """The settings of SQL among these that a session can have for itself, those of catalogs too."""
    jvm: Any = spark._jvm
    is_static = jvm.org.apache.spark.sql.internal.SQLConf.isStaticConfigKey
    return {key for key in keys if key.startswith("spark.sql.") and not is_static(key)}


def _foreign() -> bool:
    """Whether this process has a Spark that we did not start: plain PySpark's, or spark-submit's."""
    if _prepared is not None:
        return False
    if config.spark_variable("PYSPARK_GATEWAY_PORT") is not None:
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
        if before == value or (key == EXTENSIONS and _words(value) <= _words(before or "")):
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
            hint="stop the running session first, or leave these settings out; connectors with session extensions "
            'belong to the first one: Session.embedded(connectors=("iceberg",))'
            if EXTENSIONS in wanted
            else "stop the running session first, or leave these settings out",
        )
    add_jars(spark, jars)
    loader.set_hadoop_conf(spark, wanted)


def _words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",") if word.strip()}


def _boot(home: Path, plan: startup.Startup) -> tuple[gateway.Jvm, SparkSession]:
    """Start the JVM, with the class archive when there is one, and a session in it."""
    suspect = False
    if plan.quick is not None:
        try:
            return _session(home, plan.quick, plan)
        except gateway.JvmDied:
            suspect = True  # if it does better without the archive, the archive was the cause
    jvm, session = _session(home, plan.launch, plan)
    if plan.class_archive is not None:
        from penstock.spark.boot import archive_build

        if suspect:
            archive.discard(plan.class_archive)
        archive_build.start(plan.class_archive, plan.launch, home=home)
    return jvm, session


def _session(home: Path, launch: gateway.Launch, plan: startup.Startup) -> tuple[gateway.Jvm, SparkSession]:
    prepared = _take(launch, plan)
    jvm = gateway.start(launch, home=home) if prepared is None else prepared.jvm
    try:
        return jvm, _session_in(jvm, plan) if prepared is None else prepared.session()
    except BaseException as error:
        died = gateway.failed(jvm) if gateway.is_lost(error) and gateway.death() is not None else None
        pyspark_session.release(seconds=0.2)
        jvm.kill()
        pyspark_session.forget()
        if died is not None:
            raise died from None
        raise


def _session_in(jvm: gateway.Jvm, plan: startup.Startup) -> SparkSession:
    conf = dict(plan.conf)
    if not plan.orderly:
        conf["spark.local.dir"] = str(jvm.scratch.path)
    if len(str(jvm.scratch.path)) > SOCKET_FOLDER_LENGTH:
        conf["spark.python.unix.domain.socket.enabled"] = "false"
    return pyspark_session.session(jvm, conf)


def _take(launch: gateway.Launch, plan: startup.Startup) -> _Prepared | None:
    """What `prepare` began, if it is what is needed now; otherwise it is ended."""
    global _prepared
    prepared, _prepared = _prepared, None
    if prepared is None or (prepared.jvm.launch == launch and prepared.plan == plan and prepared.jvm.alive):
        return prepared
    prepared.discard()
    return None


def _end(running: _Running) -> None:
    """End Spark and its JVM, at once when nobody waits for a proper end."""
    ml.forget()
    alive = running.jvm.alive
    waiting = alive and not pyspark_session.release(seconds=0.2)
    if alive and (running.orderly or waiting):
        pyspark_session.end(running.spark)
        pyspark_session.release()
    if running.orderly:
        running.jvm.end()
    else:
        running.jvm.kill()
    pyspark_session.forget()


def _at_exit() -> None:
    """No JVM outlives Python, whatever was forgotten."""
    global _running
    with _lock:
        if _prepared is not None:
            _prepared.jvm.kill()
        if _running is not None:
            ended, _running = _running, None
            _end(ended)
        gateway.kill_all()


atexit.register(_at_exit)
