"""What is a secret, and the fields in which it is refused because they are stored."""

from __future__ import annotations

import pytest

from penstock.pipeline.load import Checked, check_text

ENVIRON = {
    "NAME": "shop",
    "USER": "ann",
    "HOST": "broker",
    "TOPIC": "orders",
    "WORD": "passw0rd",
    "OTHER": "passw0rd-2",
    "API_TOKEN": "t0ken_t0ken",
    "KAFKA_PASSWORD": "h1dden-h1dden",
    "PASSWORD_RESETS_TOPIC": "resets",
    "DATABASE": "postgresql://ann:geheim@db/shop",
}
PIPELINE = """\
name: ${NAME}
checkpoint: /data/${NAME}
sources:
  a:
    type: kafka
    topic: ${TOPIC}
    bootstrap_servers: ${HOST}:9092
    schema: {id: int64}
    primary_key: id
    filter: id <> '${WORD}'
    kafka.sasl.username: ${USER}
    kafka.sasl.password: ${WORD}
  h:
    type: hybrid
    cursor: id
    history: {type: clickhouse, table: t, url: "http://${USER}:${OTHER}@h/", filter: "id <> '${API_TOKEN}'"}
    live: {type: kafka, topic: "${PASSWORD_RESETS_TOPIC}", bootstrap_servers: b, schema: {id: int64}}
  c: {type: postgres_cdc, url: "${DATABASE}", table: t, slot: "${NAME}"}
transforms:
  q: {type: sql, sql: "SELECT id, '${API_TOKEN}' AS word FROM a"}
sinks:
  o: {type: webhook, from: q, url: "http://x/${API_TOKEN}", headers: {Accept: "${NAME}", Authorization: "Bearer ${OTHER}"}}
  p: {type: print, from: h}
  r: {type: blackhole, from: c}
"""


def checked(old: str = "", new: str = "") -> Checked:
    assert not old or PIPELINE.count(old) == 1, old
    return check_text(PIPELINE.replace(old, new) if old else PIPELINE, "p.yaml", environ=ENVIRON)


def test_secrets_may_stand_where_nothing_stores_them() -> None:
    assert [str(problem) for problem in checked().problems] == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        # By the name, by the value, and by another field.
        ("topic: ${TOPIC}", "topic: x-${KAFKA_PASSWORD}", "'topic' of the source 'a' has the secret ${KAFKA_PASSWORD}"),
        ("topic: ${TOPIC}", "topic: ${DATABASE}", "'topic' of the source 'a' has the secret ${DATABASE}"),
        ("topic: ${TOPIC}", "topic: ${WORD}", "'topic' of the source 'a' has the secret ${WORD}"),
        ("topic: ${TOPIC}", "topic: ${OTHER}", "'topic' of the source 'a' has the secret ${OTHER}"),
        ("topic: ${TOPIC}", "topic: ${NONE:-${WORD}}", "'topic' of the source 'a' has the secret ${WORD}"),
        ("topic: \"${PASSWORD_RESETS_TOPIC}\"", "topic: \"${API_TOKEN}\"", "'live.topic' of the source 'h' has the secret ${API_TOKEN}"),
        ("slot: \"${NAME}\"", "slot: \"${API_TOKEN}\"", "'slot' of the source 'c' has the secret ${API_TOKEN}"),
        ("    primary_key: id", "    primary_key: [id, \"${WORD}\"]", "'primary_key' of the source 'a' has the secret ${WORD}"),
        ("name: ${NAME}\n", "name: ${WORD}\n", "the name of the pipeline has the secret ${WORD}"),
        ("checkpoint: /data/${NAME}", "checkpoint: /data/${WORD}", "the checkpoint of the pipeline has the secret ${WORD}"),
        ("  r: {", "  '${WORD}': {", "the name of a node has the secret ${WORD}"),
    ],
)  # fmt: skip
def test_a_secret_that_would_be_stored_is_refused(old: str, new: str, what: str) -> None:
    [problem] = [one for one in checked(old, new).mistakes if one.code == "PIPELINE_SECRET"]
    assert problem.text == f"{what}, which would stand in the state of the pipeline as it is"
    assert "if " in problem.hint
    text = PIPELINE.replace(old, new).splitlines()
    assert "${" in text[problem.place.line - 1]
    for value in ("passw0rd", "t0ken", "h1dden", "geheim"):
        assert value not in str(problem)


def test_files_and_tables_of_a_lake() -> None:
    text = """\
sources:
  a: {type: file, path: "/in/${API_TOKEN}/*.json", schema: {id: int64}}
  b: {type: iceberg, table: "lake.${WORD}.t"}
  c: {type: file, path: "/in/${TOPIC}/*.json", schema: {id: int64}, options: {password: "${WORD}"}}
sinks:
  x: {type: print, from: a}
  y: {type: file, from: b, path: "/out/${API_TOKEN}", format: json}
  z: {type: print, from: c}
"""
    found = [
        (one.text.partition(",")[0], one.place.line) for one in check_text(text, environ=ENVIRON).problems
    ]
    assert found == [
        ("'path' of the source 'a' has the secret ${API_TOKEN}", 2),
        ("'table' of the source 'b' has the secret ${WORD}", 3),
    ]
