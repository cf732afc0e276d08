"""The JVM beside this process: started without scripts, tied to our life, connected through Py4J."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import config
from penstock.errors import ConfigError
from penstock.spark.boot import scratch
from penstock.spark.boot.classpath import ClassPath
from penstock.spark.boot.java import Java
from penstock.spark.boot.options import SCRATCH

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
HANDSHAKE_SECONDS = 120.0
DEATH_SECONDS = 1.0
"""How long a process may take to be gone after its connections are."""
OUT_OF_MEMORY = 52
"""The exit code of a JVM that Spark, or we, ended because its heap was full."""
LOG_BYTES = 4 << 20
IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)


class JvmDied(ConfigError):
    """The JVM ended, or never answered, before Spark started."""

    default_code = "JVM_START"


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that decides how a JVM is started."""

    java: Java
    class_path: ClassPath
    options: tuple[str, ...]
    archive_options: tuple[str, ...] = ()
    submit: Mapping[str, str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Death:
    """How a JVM ended by itself: its exit code, negative for a signal, and what it has thrown, as far as its log says."""

    code: int
    thrown: str

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended because its heap was full."""
        return self.code == OUT_OF_MEMORY or (self.code > 0 and "OutOfMemoryError" in self.thrown)

    @property
    def manner(self) -> str:
        """How it ended, in words."""
        if self.code < 0:
            return f"its JVM was killed ({_signal_name(-self.code)})"
        return f"its JVM ended with code {self.code}" + (f": {self.thrown}" if self.thrown else "")


@dataclass(slots=True)
class Jvm:
    """A JVM that we started."""

    launch: Launch
    process: subprocess.Popen[bytes]
    scratch: scratch.ScratchFolder
    log: Path
    gateway: JavaGateway | None = None
    ending: bool = False
    """Whether we are about to end it."""

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the JVM at once and delete its temporary folder."""
        self.ending = True
        self.process.kill()
        self._finish()

    def end(self, *, seconds: float = 10.0) -> None:
        """Let the JVM run its shutdown hooks (event logs, cluster applications), then end it."""
        assert self.process.stdin is not None
        self.ending = True
        self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._finish()

    def _finish(self) -> None:
        self.process.wait()
        _living[:] = [jvm for jvm in _living if jvm is not self]
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.scratch.remove()
        with contextlib.suppress(OSError):
            if self.log.stat().st_size == 0:
                self.log.unlink()


def start(launch: Launch, *, home: Path) -> Jvm:
    """Start a JVM and return at once; `connect` waits for it."""
    folder = scratch.make()
    log = _new_log(home, spare=folder.path)
    environment = config.child_environment(
        {
            **launch.environment,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder.path / "gateway"),
            "SPARK_CONNECT_MODE": "0",
        }
    )
    with log.open("ab") as output, _undisturbed():
        process = subprocess.Popen(
            _command(launch, folder.path),
            stdin=subprocess.PIPE,  # its end is how the JVM learns that we are gone, however we went
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=(folder.lock,),
            start_new_session=True,  # Ctrl-C on the terminal is for us, not for Spark
        )
        jvm = Jvm(launch, process, folder, log)
        _living.append(jvm)
        _started.add(process)
    threading.Thread(target=_bound_log, args=(jvm,), name="penstock-jvm-log", daemon=True).start()
    return jvm


def kill_all() -> None:
    """End every JVM that was started and not ended, also one that an interrupt kept from being handed to anybody."""
    while _living:
        _living[-1].kill()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep Ctrl-C waiting until a process that is being started is known to us."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def is_lost(error: BaseException) -> bool:
    """Whether a call into the JVM ended because its connection did, and not with an answer."""
    return isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JError", "Py4JNetworkError")


def death() -> Death | None:
    """How a JVM of this process ended that nobody has ended; None when all of them live.

    Asked when a connection is gone, which is a moment before the process is.
    """
    deadline = time.monotonic() + DEATH_SECONDS
    while jvms := [jvm for jvm in _living if not jvm.ending]:
        for jvm in jvms:
            code = jvm.process.poll()
            if code is not None:
                return Death(code, _thrown(jvm.log))
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return None


def connect(jvm: Jvm, *, seconds: float = HANDSHAKE_SECONDS) -> JavaGateway:
    """Wait until the JVM answers, and return its gateway as PySpark wants it."""
    port, secret = _handshake(jvm, seconds)
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import

    from penstock.spark.boot import py4j_names

    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    py4j_names.remember(gateway._gateway_client)
    gateway.proc = jvm.process
    for name in IMPORTS:
        java_import(gateway.jvm, name)
    jvm.gateway = gateway
    return gateway


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines that a JVM wrote."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return ""


def _thrown(log: Path) -> str:
    """The error that a JVM has written to its log last."""
    errors = re.findall(r"\b(java\.lang\.\w+Error(?:: [^\n]*)?)", log_tail(log, 500))
    return errors[-1].strip() if errors else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _command(launch: Launch, folder: Path) -> Sequence[str]:
    main = [GATEWAY_CLASS]
    if launch.submit is not None:
        main = [SUBMIT_CLASS, "--properties-file", str(_properties(launch.submit, folder)), "pyspark-shell"]
    options = [option.replace(SCRATCH, str(folder)) for option in launch.options]
    return [
        str(launch.java.executable),
        *launch.archive_options,
        *options,
        "-cp",
        launch.class_path.text,
        *main,
    ]


def _properties(conf: Mapping[str, str], folder: Path) -> Path:
    """Settings go to the JVM in a file that only we can read, never on a command line that everybody sees."""
    path = folder / "submit.properties"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
        for key, value in conf.items():
            out.write(f"{_escaped(key)}={_escaped(value)}\n")
    return path


def _escaped(text: str) -> str:
    """Return text as Java reads it back from a properties file."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    special |= {mark: f"\\{mark}" for mark in " =:#!"}
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(
        special.get(chr(code)) or (chr(code) if 32 <= code < 127 else f"\\u{code:04x}") for code in codes
    )


def _handshake(jvm: Jvm, seconds: float) -> tuple[int, str]:
    info = jvm.scratch.path / "gateway"
    deadline = time.monotonic() + seconds
    while not info.exists():
        if not jvm.alive or time.monotonic() > deadline:
            raise failed(jvm, seconds)
        time.sleep(0.005)
    content = info.read_bytes()
    info.unlink()
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode("utf-8")


def failed(jvm: Jvm, seconds: float = HANDSHAKE_SECONDS) -> JvmDied:
    """The error for a JVM that ended, or did not answer in time, before Spark was up; it is ended now."""
    code = jvm.process.poll()
    jvm.process.kill()
    tail = log_tail(jvm.log)
    jvm.kill()
    happened = f"ended with code {code}" if code is not None else f"did not answer in {seconds:.0f} s"
    return JvmDied(
        f"the JVM {happened} before Spark started\n{tail}".rstrip(),
        where=str(jvm.launch.java.executable),
        hint="check spark.driver.memory and spark.driver.extraJavaOptions; `penstock doctor` shows the effective settings",
    )


def _new_log(home: Path, *, spare: Path) -> Path:
    folder = home / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prune_logs(folder)
    except OSError:
        folder = spare  # a home that cannot be written is no reason not to start
    if not os.access(folder, os.W_OK):
        folder = spare
    return folder / f"jvm-{os.getpid()}-{time.time_ns() // 1_000_000}.log"


def _prune_logs(folder: Path, keep: int = 20) -> None:
    logs = sorted(folder.glob("jvm-*.log*"), key=lambda path: path.name.rsplit("-", 1)[-1])
    for log in logs[:-keep]:
        log.unlink(missing_ok=True)


def _bound_log(jvm: Jvm) -> None:
    """Keep the log of a long-lived JVM below a size."""
    while jvm.process.returncode is None:
        time.sleep(10)
        trim(jvm.log)


def trim(log: Path, limit: int = LOG_BYTES) -> None:
    """Copy a log that has grown too long, and empty it; the JVM appends, so it goes on writing at the beginning."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > limit:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def _close_pipes() -> None:
    for process in list(_started):
        if process.stdin is not None:
            process.stdin.close()


# A fork of this process must not hold the pipe open, or the JVM would outlive us.
_living: list[Jvm] = []
_started: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_close_pipes)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number without a name
        return str(os.getuid())


def python_environment(*, local: bool, spark_home: Path) -> dict[str, str]:
    """What the JVM's environment must say about Python and this Spark."""
    result = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    if local:
        # Both spare a look-up: of this machine's name, and of the user through Hadoop's login.
        result["SPARK_LOCAL_IP"] = config.spark_variable("SPARK_LOCAL_IP") or "127.0.0.1"
        result["SPARK_USER"] = config.spark_variable("SPARK_USER") or _user()
    else:
        result["PYSPARK_PYTHON"] = config.spark_variable("PYSPARK_PYTHON") or sys.executable
    return result
