"""One set of Kafka settings for two clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.kafka_access import access, for_java, for_librdkafka


@pytest.mark.parametrize("secret", ["x", 'a "quoted" one', "back\\slash", "it's; = so", ""])
def test_credentials_survive_both_ways(secret: str) -> None:
    given = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": secret}
    java = for_java(given)
    assert "sasl.username" not in java
    assert "ScramLoginModule required" in java["sasl.jaas.config"]
    assert for_librdkafka(java) == given


def test_certificates_survive_both_ways(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / f"{name}.pem").write_text(name)
    given = {f"ssl.{name}.location": str(tmp_path / f"{name}.pem") for name in ("ca", "certificate", "key")}
    java = for_java(given)
    assert java == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "certificate",
        "ssl.keystore.key": "key",
    }
    assert for_librdkafka(java) == {
        "ssl.ca.pem": "ca",
        "ssl.certificate.pem": "certificate",
        "ssl.key.pem": "key",
    }


def test_names_that_mean_the_same_are_translated() -> None:
    assert for_java({"ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }
    assert for_librdkafka({"ssl.endpoint.identification.algorithm": ""}) == {
        "ssl.endpoint.identification.algorithm": "none"
    }
    assert for_java({"sasl.mechanisms": "PLAIN"}) == {"sasl.mechanism": "PLAIN"}
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem"}
    assert for_librdkafka(store) == {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem"}
    assert for_librdkafka({"ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"}) == {
        "ssl.keystore.location": "me.p12",
        "ssl.keystore.password": "x",
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.truststore.location": "trust.jks", "ssl.truststore.password": "x"},
        {"ssl.keystore.location": "me.jks", "ssl.keystore.type": "JKS"},
        {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
    ],
)
def test_what_only_java_can_do_is_said(settings: dict[str, str]) -> None:
    assert for_java(settings) == settings
    assert access(settings) is None
    with pytest.raises(ConfigError, match="only Java's") as caught:
        for_librdkafka(settings)
    assert caught.value.code == "KAFKA_LOGIN"
    assert caught.value.hint is not None


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mechanism GSSAPI"):
        for_java({"sasl.mechanism": "GSSAPI", "sasl.username": "ann", "sasl.password": "x"})
    with pytest.raises(ConfigError, match="No such file"):
        for_java({"ssl.ca.location": str(tmp_path / "none.pem")})


def test_settings_of_other_clients_are_not_access() -> None:
    assert access({"bootstrap.servers": "a:1", "max.poll.records": 5, "linger.ms": 3}) == {
        "bootstrap.servers": "a:1"
    }
