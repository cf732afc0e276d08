"""The JVM's own options, out of Spark's settings: memory, modules, system properties."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError

# Stands for the JVM's temporary folder, which is made when it is launched.
SCRATCH = "{scratch}"
# What Spark's own launcher passes, so that Spark reaches the internals it uses. It also adds the incubating vector
# module, which only speeds up some linear algebra, is missing in small Java runtimes and rules out a class archive.
MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
# What makes a start quick without making a long query slower.
START = (
    "-XX:-UsePerfData",  # no statistics file in the temporary folder
    "-Dlog4j2.disableJmx=true",
    # The second compiler begins at twenty times the calls and loops: during a start it would take half of two cores for
    # code that runs once, and the loops of a query reach these numbers within milliseconds.
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)


def java_options(conf: Mapping[str, str], *, log4j: Path | None) -> tuple[str, ...]:
    """Return the options for a driver with these settings."""
    own = [f"-Djava.io.tmpdir={SCRATCH}"]
    if log4j is not None:
        own.append(f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        own.append(f"-Dpenstock.log.level={conf.get('spark.log.level', 'ERROR').lower()}")
    memory = conf.get("spark.driver.memory")
    if memory:
        own.append(f"-Xmx{heap(memory)}")
    return (*MODULES, *START, *own, *user_options(conf))


def user_options(conf: Mapping[str, str]) -> tuple[str, ...]:
    """The options that the user asked for, split as a shell would."""
    words: list[str] = []
    for key in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        try:
            options = shlex.split(conf.get(key, ""))
        except ValueError as error:
            raise ConfigError(f"{key}: {error}", code="JVM_OPTIONS") from error
        if any(word.startswith("-Xmx") for word in options):
            raise ConfigError(
                f"{key} may not set the heap (-Xmx)",
                code="JVM_OPTIONS",
                hint='set "spark.driver.memory" instead, for example "4g"',
            )
        words.extend(options)
    return tuple(words)


def heap(memory: str) -> str:
    """Return Spark's way of writing a size as Java's: a bare number is in mebibytes.

    >>> heap("2g"), heap("512"), heap("1500 MB")
    ('2g', '512m', '1500m')
    """
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", memory.lower())
    if not match:
        raise ConfigError(
            f"spark.driver.memory is not a size: {memory!r}",
            code="JVM_OPTIONS",
            hint='write "512m", "2g", ...',
        )
    return f"{match[1]}{match[2] or 'm'}"
