"""Iceberg catalogs: from a few plain options to the settings that Spark wants.

    {"lake": {"type": "hadoop", "warehouse": "warehouse/"}}
    {"lake": {"type": "jdbc", "uri": "postgresql://me:secret@db/lake", "warehouse": "s3://bucket/lake"}}
    {"lake": {"type": "rest", "uri": "https://catalog.example", "token": "..."}}

Other options are passed to Iceberg as they are. The `s3.*` and `client.region` options mean the same for every type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from penstock.errors import ConfigError, suggest

REQUIRED = {"hadoop": ("warehouse",), "jdbc": ("uri", "warehouse"), "rest": ("uri",)}
EXAMPLES = {
    "hadoop": '{"type": "hadoop", "warehouse": "warehouse/"}',
    "jdbc": '{"type": "jdbc", "uri": "postgresql://user:password@host/database", "warehouse": "warehouse/"}',
    "rest": '{"type": "rest", "uri": "http://host:8181", "warehouse": "name"}',
}
# Iceberg's own S3 client and Hadoop's are set up with other words for the same things.
S3_TO_HADOOP = {
    "s3.endpoint": "fs.s3a.endpoint",
    "s3.access-key-id": "fs.s3a.access.key",
    "s3.secret-access-key": "fs.s3a.secret.key",
    "s3.session-token": "fs.s3a.session.token",
    "s3.path-style-access": "fs.s3a.path.style.access",
    "client.region": "fs.s3a.endpoint.region",
}
STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "abfs": "adls", "abfss": "adls", "gs": "gcs"}


def conf_of(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings of one catalog.

    >>> conf_of("lake", {"type": "rest", "uri": "http://host:8181"})["spark.sql.catalog.lake.uri"]
    'http://host:8181'
    """
    kind = _checked(name, settings)
    options = {key: value for key, value in settings.items() if key != "type"}
    if kind in ("hadoop", "jdbc"):
        options["warehouse"] = absolute(options["warehouse"])
        options = _with_hadoop_s3(options)
    if kind == "jdbc":
        options = _jdbc(name, options)
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": kind,
        **{f"{prefix}.{key}": value for key, value in options.items()},
    }


def connectors_of(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the connectors that a catalog needs: iceberg, its database's driver, its store."""
    names = ["iceberg"]
    if settings.get("type") == "jdbc" and re.match(r"(jdbc:)?postgres(ql)?:", settings.get("uri", "")):
        names.append("postgres")
    store = STORES.get(_scheme(settings.get("warehouse", "")))
    if store is None and any(key.startswith("s3.") for key in settings):
        store = "s3"
    return (*names, store) if store else tuple(names)


def absolute(path: str) -> str:
    """Return a local path as an absolute one; a URI stays as it is."""
    if _scheme(path):
        return path
    return str(Path(path).expanduser().absolute())


def _checked(name: str, settings: Mapping[str, str]) -> str:
    where = f"catalog '{name}'"
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name == "spark_catalog":
        raise ConfigError(
            f"'{name}' cannot be the name of a catalog",
            code="CONFIG_CATALOG_NAME",
            where="catalogs",
            hint="use letters, digits and underscores; spark_catalog is Spark's own",
        )
    kind = settings.get("type")
    if kind is None:
        raise ConfigError(
            f"{where} has no type",
            code="CONFIG_CATALOG_TYPE",
            where=where,
            hint=f"types: {', '.join(REQUIRED)}; for example {EXAMPLES['hadoop']}",
        )
    if kind not in REQUIRED:
        raise ConfigError(
            f"unknown type '{kind}' of {where}",
            code="CONFIG_CATALOG_TYPE",
            where=where,
            hint=suggest(kind, REQUIRED, what="type"),
        )
    lacking = [field for field in REQUIRED[kind] if not settings.get(field)]
    if lacking:
        near = [key for key in settings if key not in ("type", *REQUIRED[kind])]
        meant = next((f"; did you mean '{field}'?" for field in lacking if _near(field, near)), "")
        raise ConfigError(
            f"{where} of type {kind} needs {' and '.join(repr(field) for field in lacking)}{meant}",
            code="CONFIG_CATALOG_FIELD",
            where=where,
            hint=f"for example {EXAMPLES[kind]}",
        )
    return kind


def _near(field: str, keys: list[str]) -> bool:
    return any(suggest(key, [field]).startswith("did you mean") for key in keys)


def _jdbc(name: str, options: dict[str, str]) -> dict[str, str]:
    """Give Iceberg a JDBC address and apart from it the user and the password."""
    options = dict(options)
    uri = options["uri"]
    for plain in ("user", "password"):
        if plain in options:
            options[f"jdbc.{plain}"] = options.pop(plain)
    if _scheme(uri) in ("postgresql", "postgres"):
        parts = urlsplit(uri)
        for key, value in (("jdbc.user", parts.username), ("jdbc.password", parts.password)):
            if value is not None:
                options.setdefault(key, unquote(value))
        host = parts.hostname or "localhost"
        host = f"[{host}]" if ":" in host else host
        query = f"?{urlencode(parse_qsl(parts.query))}" if parts.query else ""
        uri = f"jdbc:postgresql://{host}:{parts.port or 5432}{parts.path}{query}"
    elif not uri.startswith("jdbc:"):
        raise ConfigError(
            f"the uri of catalog '{name}' is no database address: {uri.split('@')[-1]}",
            code="CONFIG_CATALOG_FIELD",
            where=f"catalog '{name}'",
            hint=f"for example {EXAMPLES['jdbc']}",
        )
    options["uri"] = uri
    options.setdefault("jdbc.schema-version", "V1")  # views need it
    return options


def _with_hadoop_s3(options: dict[str, str]) -> dict[str, str]:
    """Say the S3 options in Hadoop's words, whose file system these types use."""
    if "io-impl" in options:
        return options
    translated = {
        f"hadoop.{S3_TO_HADOOP[key]}": value for key, value in options.items() if key in S3_TO_HADOOP
    }
    if "s3.endpoint" in options:
        translated.setdefault("hadoop.fs.s3a.path.style.access", "true")
        translated.setdefault("hadoop.fs.s3a.endpoint.region", "us-east-1")
    others = {key: value for key, value in options.items() if key not in S3_TO_HADOOP}
    return {**translated, **others}


def _scheme(text: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    return match[1].casefold() if match else ""
