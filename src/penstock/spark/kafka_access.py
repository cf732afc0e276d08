"""How to get into a Kafka cluster, for the two clients that go there: Java's in Spark, and librdkafka in this process.

People write either client's settings; each client is given its own. The settings are here without the prefix `kafka.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from penstock.errors import ConfigError
from penstock.options import FromSetting

SERVERS = "kafka.bootstrap.servers"
BootstrapServers = Annotated[
    str,
    FromSetting("kafka_bootstrap_servers", "host:9092", code="KAFKA_SERVERS"),
    Field(
        validation_alias=AliasChoices("bootstrap_servers", SERVERS),
        description="the brokers, `host:9092,other:9092`",
    ),
]
"""The option of sources and sinks."""

# Login modules of Java for a mechanism; others need more than a user and a password.
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_IN_JAAS = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
# What only Java's client knows; where it means something to librdkafka, it is translated.
_JAVA_ONLY = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
)
_LIBRDKAFKA_ONLY = (
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
)
# What is needed to get in, and nothing else: settings of one kind of client mean nothing to another.
_ACCESS = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    *_LIBRDKAFKA_ONLY,
)


def for_java(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for Java's client.

    >>> for_java({"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "x"})["sasl.jaas.config"]
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="x";'
    """
    java_settings = {name: value for name, value in settings.items() if name not in _LIBRDKAFKA_ONLY}
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
    if mechanism is not None:
        java_settings["sasl.mechanism"] = mechanism
    if "sasl.username" in settings and "sasl.jaas.config" not in settings:
        java_settings["sasl.jaas.config"] = _jaas(str(mechanism), settings)
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        java_settings["ssl.endpoint.identification.algorithm"] = ""
    authority = _text(settings, "ssl.ca")
    if authority is not None:
        java_settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate, key = _text(settings, "ssl.certificate"), _text(settings, "ssl.key")
    if certificate is not None and key is not None:
        java_settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
    return java_settings


def for_librdkafka(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for librdkafka; what it cannot do is refused.

    >>> for_librdkafka({"sasl.jaas.config": 'a.PlainLoginModule required username="ann" password="x";'})
    {'sasl.username': 'ann', 'sasl.password': 'x'}
    """
    client_settings = {name: value for name, value in settings.items() if name not in _JAVA_ONLY}
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        client_settings["ssl.endpoint.identification.algorithm"] = "none"
    if "sasl.jaas.config" in settings:
        client_settings |= _credentials(str(settings["sasl.jaas.config"]))
    if "ssl.truststore.certificates" in settings:
        client_settings["ssl.ca.pem"] = settings["ssl.truststore.certificates"]
    elif "ssl.truststore.location" in settings:
        if str(settings.get("ssl.truststore.type", "JKS")).upper() != "PEM":
            raise _java_only("ssl.truststore.location", 'write "kafka.ssl.ca.location", a PEM file, instead')
        client_settings["ssl.ca.location"] = settings["ssl.truststore.location"]
    kind = str(settings.get("ssl.keystore.type", "PKCS12")).upper()
    if "ssl.keystore.certificate.chain" in settings:
        client_settings["ssl.certificate.pem"] = settings["ssl.keystore.certificate.chain"]
        client_settings["ssl.key.pem"] = settings.get("ssl.keystore.key")
    elif "ssl.keystore.location" in settings and kind == "PEM":
        path = client_settings.pop("ssl.keystore.location")
        client_settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
    elif "ssl.keystore.location" in settings and kind != "PKCS12":
        raise _java_only(
            "ssl.keystore.type", 'write "kafka.ssl.certificate.location" and "kafka.ssl.key.location" instead'
        )
    return client_settings


def access(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what librdkafka needs to get in, and no other setting; None when only Java's client can."""
    try:
        return {name: value for name, value in for_librdkafka(settings).items() if name in _ACCESS}
    except ConfigError:
        return None


def unprefixed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that start with `kafka.`, without it."""
    return {
        name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")
    }


def prefixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as options of Spark."""
    return {f"kafka.{name}": value for name, value in settings.items()}


def _jaas(mechanism: str, settings: Mapping[str, Any]) -> str:
    module = _MODULES.get(mechanism.upper())
    if module is None:
        raise ConfigError(
            f"kafka.sasl.username does not go with the mechanism {mechanism}",
            code="KAFKA_LOGIN",
            hint=f'"kafka.sasl.mechanism" is one of {", ".join(_MODULES)}; others take "kafka.sasl.jaas.config"',
        )
    user, password = (
        str(settings.get(f"sasl.{name}", "")).replace("\\", "\\\\").replace('"', '\\"')
        for name in ("username", "password")
    )
    return f'{module} required username="{user}" password="{password}";'


def _credentials(jaas: str) -> dict[str, str]:
    credentials = {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single in _IN_JAAS.findall(jaas)
    }
    if len(credentials) != 2:
        raise _java_only(
            "sasl.jaas.config", 'write "kafka.sasl.username" and "kafka.sasl.password" if it has them'
        )
    return credentials


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    if f"{name}.pem" in settings:
        return str(settings[f"{name}.pem"])
    if f"{name}.location" not in settings:
        return None
    path = Path(str(settings[f"{name}.location"]))
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", code="KAFKA_LOGIN", where=f"kafka.{name}.location"
        ) from error


def _java_only(name: str, hint: str) -> ConfigError:
    return ConfigError(
        f"only Java's Kafka client understands kafka.{name} as it is written, and this needs librdkafka",
        code="KAFKA_LOGIN",
        hint=hint,
    )
