"""Options of connectors: what is taken, what is refused, and what their schema says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import AliasChoices, ConfigDict, Field, StringConstraints

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.options import (
    Count,
    Duration,
    Expressions,
    FromSetting,
    IgnoringCase,
    Names,
    Options,
    OptionsOwner,
    Others,
    PathText,
    Texts,
    read_options,
)

OWNER = OptionsOwner("the lake sink")


class Lake(Options):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, StringConstraints(pattern=r"^lake\.")], Any]
    other_options: ClassVar[Others | None] = Others("lake.", "settings of the lake")

    table: str = Field(description="the table")
    url: Annotated[str, FromSetting("postgres_url", "lake://host", code="LAKE_URL")] = Field(
        validation_alias=AliasChoices("url", "lake.url"), repr=False, description="the address"
    )
    form: Annotated[Literal["json", "avro"] | None, IgnoringCase] = None
    timeout: Duration = Field("30 seconds", validate_default=True, description="of one request")
    rows: Count = 10
    create: bool = True
    headers: Texts = {}
    columns: Names = ()
    partition_by: Expressions | None = None
    path: PathText | None = None


def _read(**options: Any) -> Lake:
    return read_options(Lake, {"table": "t", "url": "u", **options}, owner=OWNER)


def _refused(options: dict[str, Any], settings: Settings | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_options(Lake, options, owner=OWNER, settings=settings)
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("timeout", 1_500, 1_500),
        ("timeout", "5 seconds", 5_000),
        ("timeout", timedelta(minutes=1), 60_000),
        ("create", False, False),
        ("create", "false", False),
        ("create", "TRUE", True),
        ("rows", "7", 7),
        ("form", "JSON", "json"),
        ("headers", {"a": 1, "b": "x"}, {"a": "1", "b": "x"}),
        ("columns", "a, b", ("a", "b")),
        ("columns", ["a", "b"], ("a", "b")),
        ("partition_by", ["days(at)", "id"], "days(at), id"),
        ("partition_by", "days(at), id", "days(at), id"),
        ("path", Path("a/b"), "a/b"),
        ("table", 5, "5"),
    ],
)
def test_values_as_users_and_yaml_write_them(name: str, value: Any, result: Any) -> None:
    assert getattr(_read(**{name: value}), name) == result


def test_defaults() -> None:
    options = _read()
    assert (options.timeout, options.rows, options.create, options.form) == (30_000, 10, True, None)


@pytest.mark.parametrize(
    ("options", "code", "message", "hint"),
    [
        ({"tabel": 1}, "STREAM_OPTION_UNKNOWN", "has no option 'tabel'", "did you mean 'table'?"),
        ({"lakes.a": 1}, "STREAM_OPTION_UNKNOWN", "has no option 'lakes.a'", "others begin with 'lake.'"),
        ({"timeout": "soon"}, "STREAM_OPTION_VALUE", "timeout is not a duration: 'soon'", "'5 seconds'"),
        ({"timeout": -1}, "STREAM_OPTION_VALUE", "timeout cannot be negative, got -1", ""),
        ({"rows": 0}, "STREAM_OPTION_VALUE", "rows must be a whole number above 0, got 0", ""),
        ({"rows": "many"}, "STREAM_OPTION_VALUE", "rows must be a whole number above 0, got 'many'", ""),
        ({"rows": True}, "STREAM_OPTION_VALUE", "rows must be a whole number above 0, got True", ""),
        ({"create": "perhaps"}, "STREAM_OPTION_VALUE", "create must be true or false, got 'perhaps'", ""),
        ({"form": "jsn"}, "STREAM_OPTION_VALUE", "unknown form 'jsn'", "did you mean 'json'?"),
        ({"headers": "a: b"}, "STREAM_OPTION_VALUE", "headers must be a dictionary, got str", ""),
        ({"table": ["a"]}, "STREAM_OPTION_VALUE", "table must be text, got list", ""),
    ],
)
def test_one_mistake(options: dict[str, Any], code: str, message: str, hint: str) -> None:
    error = _refused({"table": "t", "url": "u", **options})
    assert error.code == code
    assert error.message.startswith("the lake sink")
    assert message in error.message
    assert hint in str(error.hint)


def test_a_missing_option() -> None:
    error = _refused({"url": "u"})
    assert (error.code, error.message) == ("STREAM_OPTION_MISSING", "the lake sink needs the option 'table'")
    assert error.hint == 'add .option("table", ...)'


def test_all_mistakes_are_in_one_error() -> None:
    error = _refused({"tabel": "t", "url": "u", "row": 1, "timeout": "soon", "create": "perhaps"})
    assert error.code == "STREAM_OPTIONS"
    assert error.message == (
        "the lake sink: no option 'tabel'; no option 'row'; the option 'table' is missing; "
        "timeout is not a duration: 'soon'; create must be true or false, got 'perhaps'"
    )
    assert "did you mean 'table' for 'tabel', 'rows' for 'row'?" in str(error.hint)


def test_several_mistakes_of_one_kind_keep_its_code() -> None:
    assert _refused({"table": "t", "url": "u", "rows": 0, "form": "x"}).code == "STREAM_OPTION_VALUE"


def test_no_secret_is_shown() -> None:
    error = _refused({"table": "t", "url": ["lake://me:secret@host"], "headers": ["secret"]})
    assert "secret" not in str(error)
    assert "url must be text, got list" in error.message

    class Login(Options):
        password: int
        address: int

    with pytest.raises(ConfigError) as caught:
        read_options(Login, {"password": "secret", "address": "lake://me:secret@host"}, owner=OWNER)
    assert "password must be a whole number, got '***'" in caught.value.message
    assert "secret" not in str(caught.value)


def test_a_setting_completes_what_the_user_left_out(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, postgres_url="lake://setting")
    complete = read_options(Lake, {"table": "t"}, owner=OWNER, settings=settings)
    assert complete.url == "lake://setting"
    for own in ({"url": "lake://own"}, {"lake.url": "lake://own"}):
        assert read_options(Lake, {"table": "t", **own}, owner=OWNER, settings=settings).url == "lake://own"

    class Beside(Options):
        lake: Lake | None = None

    nested = read_options(Beside, {"lake": {"table": "t"}}, owner=OWNER, settings=settings)
    assert nested.lake is not None
    assert nested.lake.url == "lake://setting"
    empty = read_options(Lake, {"table": "t", "url": None}, owner=OWNER, settings=settings)
    assert empty.url == "lake://setting"
    for options in ({"table": "t"}, {"table": "t", "url": ""}):
        assert _refused(options, Settings(home=tmp_path)).code == "LAKE_URL"
    error = _refused({"table": "t"}, Settings(home=tmp_path))
    assert error.hint == 'add .option("url", "lake://host"), or set PENSTOCK_POSTGRES_URL'


def test_options_of_another_system_are_handed_on() -> None:
    assert _read(**{"lake.a": 1, "lake.b": "x"}).model_extra == {"lake.a": 1, "lake.b": "x"}


def test_options_cannot_change() -> None:
    with pytest.raises(Exception, match="frozen"):
        _read().rows = 5


def test_the_schema_says_what_is_taken() -> None:
    schema = Lake.model_json_schema()
    assert schema["required"] == ["table"]
    assert schema["additionalProperties"] is False
    assert schema["patternProperties"] == {"^lake[.]": {"description": "settings of the lake"}}
    properties = schema["properties"]
    assert properties["table"] == {"description": "the table", "title": "Table", "type": "string"}
    assert properties["form"]["anyOf"][0]["enum"] == ["json", "avro"]
    assert [part["type"] for part in properties["timeout"]["anyOf"]] == ["integer", "string"]
    assert properties["timeout"]["default"] == "30 seconds"
    assert properties["rows"] == {"default": 10, "exclusiveMinimum": 0, "title": "Rows", "type": "integer"}
    assert properties["create"]["type"] == "boolean"
