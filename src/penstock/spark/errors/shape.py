"""The errors that Spark does not name: the Java class or the text says which error the user gets."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.errors import (
    ConfigError,
    ConnectorError,
    DataError,
    InternalError,
    PenstockError,
    SqlError,
    StateError,
    suggest,
)
from penstock.spark.boot import gateway
from penstock.spark.connectors import ADDITIONS, connector_for_format, connector_for_path, needs_restart
from penstock.spark.errors.cause import Fault
from penstock.spark.errors.flow_table import decoded
from penstock.spark.errors.wording import Question, sentence, where


def missing_source(fault: Fault) -> str | None:
    """Return the format or scheme that Spark did not find, when that is what the fault is about."""
    if fault.condition in ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1139", "_LEGACY_ERROR_TEMP_1140"):
        return fault.parameters.get("provider")
    if match := re.search(r'No FileSystem for scheme "(\w+)"', fault.message):
        return match[1]
    if match := re.search(
        r"Class org\.apache\.hadoop\.fs\.(s3a)\S* not found|Cannot find catalog plugin class .*\.(iceberg)\.",
        fault.message,
    ):
        return match[1] or match[2]
    return None


def connector_for(name: str) -> str | None:
    """Return the connector of a format or of a path's scheme."""
    return connector_for_format(name) or connector_for_path(f"{name}://")


def _no_connector(fault: Fault, question: Question) -> PenstockError | None:
    name = missing_source(fault)
    if name is None:
        return None
    connector = connector_for(name)
    if connector is None:
        formats = ["parquet", "csv", "json", "orc", "text"]
        formats += [form for has in ADDITIONS.values() for form in has.formats]
        return ConnectorError(
            f"no data source '{name}'",
            code="CONNECTOR_UNKNOWN",
            where=where(fault, question),
            hint=suggest(name, formats, what="format"),
        )
    if ADDITIONS[connector].extension is not None:
        return needs_restart(connector)
    return ConnectorError(
        f"the connector '{connector}' is not in this session",
        code="CONNECTOR_MISSING",
        where=where(fault, question),
        hint=f"penstock connectors install {connector}, "
        f'and start the session with it: ps.Session.embedded(connectors=("{connector}",))',
    )


def _no_driver(fault: Fault, question: Question) -> PenstockError | None:
    if fault.kind != "java.sql.SQLException" or "No suitable driver" not in fault.message:
        return None
    return ConnectorError(
        "no JDBC driver for this URL",
        code="CONNECTOR_MISSING",
        hint='for Postgres start the session with connectors=("postgres",); '
        "for others put the driver's jar in spark.jars",
    )


def _python_function(fault: Fault, question: Question) -> PenstockError | None:
    if (
        not fault.kind.endswith(".PythonException")
        or "Traceback (most recent call last)" not in fault.message
    ):
        return None
    trace = fault.message.partition("Traceback (most recent call last):")[2]
    frames = re.findall(r'^ *File "([^"]+)", line (\d+), in (.+)\n(?:    +(.+)\n)?', trace, re.MULTILINE)
    ours = [
        frame for frame in frames if not re.search(r"[/\\]pyspark(\.zip)?[/\\]|^<frozen|runpy\.py$", frame[0])
    ]
    # The error's own text is what stands behind the last frame, at the left margin.
    tail = re.split(r'^ *File "[^"]+", line \d+, in .+\n(?:    .*\n)*', trace, flags=re.MULTILINE)[-1].strip()
    lines = [
        f"{file}:{line} in {name}" + (f"\n      {code}" if code else "") for file, line, name, code in ours
    ]
    return SqlError(
        f"a Python function failed: {tail.split(chr(10))[0]}",
        code="SQL_PYTHON_FUNCTION",
        where="\n      ".join(lines) or None,
    )


def _crashed_worker(fault: Fault, question: Question) -> PenstockError | None:
    if "Python worker exited unexpectedly" not in fault.message:
        return None
    return SqlError(
        "a Python function ended its process",
        code="SQL_PYTHON_CRASH",
        hint="it was killed (out of memory?) or crashed in native code; "
        'conf={"spark.python.worker.faulthandler.enabled": True} shows where',
    )


def _memory(fault: Fault, question: Question) -> PenstockError | None:
    large = "is bigger than spark.driver.maxResultSize" in fault.message
    if not large and not fault.kind.endswith("OutOfMemoryError") and "OutOfMemoryError" not in fault.message:
        return None
    if large:
        return DataError(
            "the result is larger than spark.driver.maxResultSize",
            code="SPARK_RESULT_SIZE",
            hint="fetch it by its tickets (session.submit), or raise the limit in conf=",
        )
    thrown = re.search(r"OutOfMemoryError(: [^\n]*)?", f"{fault.kind}: {fault.message}")
    return _out_of_memory("java.lang." + (thrown[0] if thrown else "OutOfMemoryError"))


def _out_of_memory(thrown: str, *, ended: bool = False) -> PenstockError:
    return StateError(
        f"Spark ran out of memory{' and has ended' if ended else ''}: {thrown.rstrip(': ')}",
        code="SPARK_OUT_OF_MEMORY",
        hint='give it more, as in conf={"spark.driver.memory": "8g"}, or more partitions',
    )


UNANSWERED = r"An error occurred while calling \S+"


def _gone(fault: Fault, question: Question) -> PenstockError | None:
    stopped = ("Cannot call methods on a stopped SparkContext", "SparkContext was shut down")
    lost = fault.kind.endswith(
        ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError")
    )
    # Py4J's words for a connection that ended in the middle of a call: an answer would bring Java's exception with it.
    cut = fault.kind.endswith("Py4JError") and re.fullmatch(UNANSWERED, fault.message) is not None
    if not (lost or cut or any(words in fault.message for words in stopped)):
        return None
    death = gateway.death() if lost or cut else None
    if death is not None and death.out_of_memory:
        return _out_of_memory(death.thrown or "java.lang.OutOfMemoryError", ended=True)
    return StateError(
        "Spark has ended" if death is None else f"Spark has ended: {death.manner}",
        code="SPARK_ENDED",
        hint="start a new session; if it ended by itself, look at its memory (spark.driver.memory)",
    )


def _conflict(fault: Fault, question: Question) -> PenstockError | None:
    short = fault.kind.rpartition(".")[2]
    if not re.search(
        r"CommitFailedException|Concurrent\w*(Append|Write|Modification|Transaction)\w*Exception", short
    ):
        return None
    if short == "ConcurrentModificationException":
        return None
    return ConnectorError(
        f"another writer changed the table at the same time: {sentence(fault)}",
        code="CONNECTOR_WRITE_CONFLICT",
        hint="run the statement again",
        retryable=True,
    )


def _kafka(fault: Fault, question: Question) -> PenstockError | None:
    """What Kafka's clients say in the JVM: a broker that is away may come back, everything else does not pass."""
    if not fault.kind.startswith("org.apache.kafka."):
        return None
    short, text = fault.kind.rpartition(".")[2], sentence(fault)
    if re.search(
        r"(Timeout|Disconnect|Network|NotCoordinator|LeaderNotAvailable|BrokerNotAvailable)Exception$", short
    ):
        return ConnectorError(
            f"Kafka does not answer: {text}",
            code="KAFKA_UNREACHABLE",
            hint="is the broker running, and are bootstrap_servers right?",
            retryable=True,
        )
    if short == "UnknownTopicOrPartitionException":
        return ConnectorError(
            f"no such topic: {text}", code="KAFKA_TOPIC_MISSING", hint="make the topic, or correct its name"
        )
    if "Authentication" in short or "Authorization" in short:
        return ConnectorError(
            f"Kafka refuses: {text}",
            code="KAFKA_AUTH",
            hint="check kafka.security.protocol and the credentials",
        )
    if short == "ConfigException":
        return ConfigError(
            f"a Kafka setting is wrong: {text}",
            code="KAFKA_SETTING",
            hint="check bootstrap_servers and kafka.* options",
        )
    return None


def _setting(fault: Fault, question: Question) -> PenstockError | None:
    if not (fault.condition or "").startswith(("INVALID_CONF_VALUE", "CANNOT_MODIFY_CONFIG")):
        return None
    return ConfigError(sentence(fault), code="CONFIG_SPARK_VALUE", where=where(fault, question))


def _arithmetic(fault: Fault, question: Question) -> PenstockError | None:
    """Java's own arithmetic, which Spark uses for timestamps and intervals without a name for what it raises."""
    if fault.kind != "java.lang.ArithmeticException":
        return None
    rounding = "ounding necessary" in fault.message
    message = (
        "a number has more digits behind the point than its result can have"
        if rounding
        else f"a value does not fit its type: {sentence(fault)}"
    )
    return DataError(
        message,
        code="DATA_OVERFLOW",
        where=where(fault, question),
        hint="round it first" if rounding else "cast to a wider type first, or use smaller values",
    )


def _format_string(fault: Fault, question: Question) -> PenstockError | None:
    """What java.util.Formatter raises for format_string and printf."""
    kind = re.fullmatch(r"java\.util\.(\w*Format\w*Exception)", fault.kind)
    if kind is None:
        return None
    return SqlError(
        f"the format string does not fit its arguments: {sentence(fault) or kind[1]}",
        code="SQL_FORMAT_STRING",
        where=where(fault, question),
        hint="every %s, %d, %f needs an argument of its kind; %% is a percent sign",
    )


def _date_time(fault: Fault, question: Question) -> PenstockError | None:
    if not re.fullmatch(r"java\.time\.(\w+\.)*\w+Exception", fault.kind):
        return None
    return DataError(
        sentence(fault),
        code="DATA_DATETIME",
        where=where(fault, question),
        hint="dates and times are those of the calendar, zones those of the IANA list such as Europe/Berlin",
    )


def _own(fault: Fault, question: Question) -> PenstockError | None:
    """Neither Spark nor PySpark raised it: ours, or of the libraries we call."""
    if fault.kind.startswith(("pyspark.", "py4j.", "java.", "javax.", "org.", "scala.", "io.", "com.")):
        return None
    return InternalError(f"{fault.kind.rpartition('.')[2]}: {fault.message}", code="INTERNAL")


def _flow_table(fault: Fault, question: Question) -> PenstockError | None:
    return decoded(fault.message)


BY_SHAPE: tuple[Callable[[Fault, Question], PenstockError | None], ...] = (
    _flow_table,
    _no_connector,
    _no_driver,
    _python_function,
    _crashed_worker,
    _memory,
    _gone,
    _conflict,
    _kafka,
    _setting,
    _own,
)

# Exceptions of Java itself, which Spark mostly gives a name of its own: they count when no exception of the chain has one.
WITHOUT_NAME: tuple[Callable[[Fault, Question], PenstockError | None], ...] = (
    _arithmetic,
    _format_string,
    _date_time,
)
