"""A schema registry, as Confluent's and those that speak like it: the schemas with which records were written, by id."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from penstock.errors import ConfigError, ConnectorError

SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Registered:
    """One schema of a registry, with the schemas that it refers to, those first."""

    id: int
    texts: tuple[str, ...]
    kind: str = "AVRO"


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at an address; user and password may stand in it."""

    url: str = field(repr=False)
    auth: str | None = field(default=None, repr=False)
    """`user:password`."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "the address of a schema registry starts with http:// or https://",
                code="SCHEMA_REGISTRY_ADDRESS",
                where=self.location,
            )

    @property
    def location(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def schema(self, number: int) -> Registered | None:
        """Return the schema of an id; None when the registry does not have it."""
        answer = self._get(f"/schemas/ids/{number}")
        return None if answer is None else self._registered(number, answer)

    def latest(self, subject: str) -> Registered | None:
        """Return the newest schema of a subject; None when the registry does not have it."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer is None else self._registered(int(answer["id"]), answer)

    def all(self, subject: str) -> list[Registered]:
        """Return the schemas of a subject; the decoder can learn others by their ids."""
        versions = self._get(f"/subjects/{quote(subject, safe='')}/versions")
        if versions is None:
            newest = self.latest(subject)
            return [] if newest is None else [newest]
        answers = [self._version(subject, version) for version in versions]
        return [self._registered(int(answer["id"]), answer) for answer in answers if answer is not None]

    def register(self, subject: str, text: str) -> int:
        """Add an Avro schema to a subject, unless it has it already, and return its id."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": text})
        if answer is None:
            raise ConnectorError(
                f"the schema registry takes no schema for the subject '{subject}'",
                code="SCHEMA_REGISTRY_REFUSED",
                where=self.location,
            )
        return int(answer["id"])

    def _version(self, subject: str, version: Any) -> Any:
        return self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def _registered(self, number: int, answer: Mapping[str, Any]) -> Registered:
        texts: list[str] = []
        for reference in answer.get("references") or ():
            other = self._version(reference["subject"], reference["version"])
            if other is not None:
                texts.extend(self._registered(int(other["id"]), other).texts)
        return Registered(
            number, (*dict.fromkeys(texts), answer["schema"]), answer.get("schemaType") or "AVRO"
        )

    def _get(self, path: str) -> Any:
        return self._ask(path, None)

    def _ask(self, path: str, content: Mapping[str, Any] | None) -> Any:
        """Return an answer, or None when there is no such thing."""
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.location.rstrip('/')}{path}", data=body)
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        login = self.auth or urlsplit(self.url).netloc.rpartition("@")[0]
        if login:
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                refused = error.code in (401, 403, 409, 422)
                login_fails = error.code in (401, 403)
                raise ConnectorError(
                    f"the schema registry answers {error.code} {error.reason}",
                    code="SCHEMA_REGISTRY_REFUSED" if refused else "SCHEMA_REGISTRY",
                    where=f"{self.location}{path}",
                    hint='give schema_registry_auth="user:password"' if login_fails else None,
                    retryable=error.code >= 500,
                ) from error
        except (OSError, ValueError) as error:
            raise ConnectorError(
                f"the schema registry does not answer: {getattr(error, 'reason', error)}",
                code="SCHEMA_REGISTRY_AWAY",
                where=self.location,
                retryable=True,
            ) from error
