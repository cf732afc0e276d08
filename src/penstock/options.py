"""Options of sources, sinks and plugins: frozen models that are checked as a whole and that describe themselves.

A model is the only list of a connector's options. It checks what users write, it is the schema of the connector in YAML
(`model_json_schema()`), and the tables of the reference are written from it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from penstock.backend.address import hidden_values
from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, nearest, suggest

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.fields import FieldInfo
    from pydantic_core import CoreSchema, ErrorDetails

    from penstock.config import Settings

SEVERAL = "STREAM_OPTIONS"
"""The code of an error with mistakes of several kinds."""

_CUSTOM = "penstock"
_MOST_MISTAKES = 200
"""How many mistakes are shown of the options of one owner."""
_MOST = (1 << 63) - 1
"""The largest number that Spark can count with."""
_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a dictionary",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be a whole number above {gt}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be a dictionary",
    "model_type": "must be a dictionary",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have {max_length} characters at most",
    "string_too_short": "must have {min_length} characters at least",
    "string_type": "must be text",
    "too_long": "must have {max_length} entries at most",
    "too_short": "must have {min_length} entries at least",
    "tuple_type": "must be a list",
}


@dataclass(frozen=True, slots=True)
class FromSetting:
    """Marks a required option that a setting of the session gives when the user does not."""

    name: str
    """The field of `Settings`; the environment has it as PENSTOCK_NAME."""
    example: str
    code: str | None = None
    """The code of the error when neither is there, if it has its own."""

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return f"PENSTOCK_{self.name.upper()}"


@dataclass(frozen=True, slots=True)
class Others:
    """Options that a connector hands on to another system under the names that they have there."""

    prefix: str
    """What their names begin with; empty when every name is taken."""
    description: str


class Options(BaseModel):
    """The options of a connector, with their types and defaults; an option that is not among them is refused.

    >>> class Mine(Options):
    ...     url: str
    ...     rows: int = 100
    >>> Mine(url="http://x", rows="5").rows
    5
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    other_options: ClassVar[Others | None] = None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        optional = settings_of(cls)
        required = [name for name in schema.pop("required", ()) if name not in optional]
        if required:
            schema["required"] = required
        if cls.other_options is not None:
            rest = {"description": cls.other_options.description}
            if cls.other_options.prefix:
                schema["additionalProperties"] = False
                schema["patternProperties"] = {f"^{cls.other_options.prefix.replace('.', '[.]')}": rest}
            else:
                schema["additionalProperties"] = rest
        return schema


Model = TypeVar("Model", bound=Options)


@dataclass(frozen=True, slots=True)
class OptionsOwner:
    """Whose options are read, for the words and the codes of errors."""

    name: str
    """As it begins a sentence: "the kafka sink"."""
    code: str = "STREAM_OPTION"
    syntax: str = '.option("{name}", {value})'
    """How users write an option."""

    def written(self, name: str, value: str = "...") -> str:
        """An option as users write it."""
        return self.syntax.format(name=name, value=value)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with options that a user wrote."""

    kind: Literal["UNKNOWN", "MISSING", "VALUE"]
    path: tuple[str | int, ...]
    """Where it is: the name of the option, and the way into its value; empty when it is about several options."""
    text: str
    hint: str | None = None
    code: str | None = None
    choices: tuple[str, ...] = ()
    """Of an unknown name, the names that there are."""

    @property
    def name(self) -> str:
        """The name of the option."""
        return str(self.path[0]) if self.path else ""

    @property
    def order(self) -> int:
        """Which kinds of mistakes come first."""
        return ("UNKNOWN", "MISSING", "VALUE").index(self.kind)


def read_options(
    model: type[Model],
    options: Mapping[str, Any] | Options,
    *,
    owner: OptionsOwner,
    settings: Settings | None = None,
) -> Model:
    """Return the model of what the user wrote and the settings complete, or raise one error with all mistakes; a
    model is checked already."""
    if isinstance(options, Options):
        return cast("Model", options)
    read, mistakes = check_options(model, options, owner=owner, settings=settings)
    if read is None:
        raise _error(mistakes, model, owner)
    return read


def check_options(
    model: type[Model], options: Mapping[str, Any], *, owner: OptionsOwner, settings: Settings | None = None
) -> tuple[Model | None, list[Mistake]]:
    """Return the model of what the user wrote and the settings complete, or None and all mistakes."""
    values = _completed(model, options, settings)
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        details = error.errors(include_url=False)[:_MOST_MISTAKES]
    mistakes: dict[tuple[str | int, ...], Mistake] = {}
    for detail in details:
        current = _mistake(model, detail, owner, values)
        before = mistakes.get(current.path)
        # The parts of a union each say what they would take.
        mistakes[current.path] = current if before is None else _either(before, current)
    return None, sorted(mistakes.values(), key=lambda item: item.order)


def mistake(message: str, *, hint: str | None = None) -> PydanticCustomError:
    """Return the error that a validator raises; behind the name of its option, the message completes the sentence."""
    return PydanticCustomError(_CUSTOM, "{message}", {"message": message, "hint": hint})


def settings_of(model: type[Options]) -> dict[str, FromSetting]:
    """Return the options of a model that a setting completes."""
    return {
        name: mark
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, FromSetting)
    }


def literals(annotation: Any) -> list[str]:
    """Return the words that a type takes when it is made of words.

    >>> literals(Literal["a", "b"] | None)
    ['a', 'b']
    """
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for part in get_args(annotation) for word in literals(part)]


def option_fields(model: type[Options]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the names that users write."""
    return {
        field.validation_alias if isinstance(field.validation_alias, str) else name: field
        for name, field in model.model_fields.items()
    }


def _completed(model: type[Options], options: Mapping[str, Any], settings: Settings | None) -> dict[str, Any]:
    values = dict(options)
    for name, mark in settings_of(model).items():
        aliases = aliases_of(name, model.model_fields[name])
        if any(values.get(alias) for alias in aliases):
            continue
        for alias in aliases:
            values.pop(alias, None)
        setting = getattr(settings, mark.name, None)
        if setting:
            values[name] = setting
    for name, field in model.model_fields.items():
        inner = models_in(field.annotation)
        if len(inner) == 1 and isinstance(values.get(name), Mapping):
            values[name] = _completed(inner[0], values[name], settings)
    return values


def aliases_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the names under which an option is taken, its own first."""
    choices = getattr(field.validation_alias, "choices", ())
    return (name, *(choice for choice in choices if isinstance(choice, str) and choice != name))


def _mistake(
    model: type[Options], detail: ErrorDetails, owner: OptionsOwner, values: Mapping[str, Any]
) -> Mistake:
    path, fields, field = _located(model, detail["loc"], values)
    name = str(path[-1]) if path else ""
    kind = detail["type"]
    if kind == "extra_forbidden" or (field is None and kind == "string_pattern_mismatch"):
        hint = suggest(name, fields, what="option") if len(path) > 1 else None
        text = f"no option '{'.'.join(map(str, path))}'"
        return Mistake("UNKNOWN", path, text, hint, choices=tuple(fields))
    if kind == "missing" and len(path) == 1:
        return _missing(name, settings_of(model).get(name), owner)
    if kind in ("missing", "union_tag_not_found"):
        if kind == "union_tag_not_found":
            path = (*path, str(detail["ctx"]["discriminator"]).strip("'"))
        dotted = ".".join(map(str, path))
        return Mistake("MISSING", path, f"the option '{dotted}' is missing", f"add {path[-1]}")
    context = detail.get("ctx", {})
    dotted = ".".join(map(str, path))
    if kind == _CUSTOM:
        return Mistake("VALUE", path, f"{dotted} {context['message']}".lstrip(), context["hint"])
    value = detail["input"]
    if kind == "union_tag_invalid":
        tag = str(context["tag"])
        path = (*path, str(context["discriminator"]).strip("'"))
        words = [word.strip().strip("'") for word in str(context["expected_tags"]).split(",")]
        return Mistake(
            "VALUE", path, f"unknown {'.'.join(map(str, path))} '{tag}'", suggest(tag, words, what="value")
        )
    if kind == "literal_error":
        words = literals(field.annotation) if field is not None else []
        expected = words or [word.strip("' ") for word in re.split(r",| or ", str(context["expected"]))]
        text = f"unknown {dotted} {_shown(value, name, field)}"
        return Mistake("VALUE", path, text, suggest(str(value), expected, what="value"))
    if kind in _WORDS:
        words_of_kind = _WORDS[kind].format(**context)
    else:
        words_of_kind = detail["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    return Mistake("VALUE", path, f"{dotted} {words_of_kind}, got {_shown(value, name, field)}".lstrip())


def _located(
    model: type[Options], loc: Sequence[str | int], values: Any
) -> tuple[tuple[str | int, ...], list[str], FieldInfo | None]:
    """The path of a value without the words that name parts of a union, the names that it may have at its end, and its field."""
    path: list[str | int] = []
    models: list[type[Options]] = [model]
    names: list[str] = list(option_fields(model))
    field: FieldInfo | None = None
    for index, part in enumerate(loc):
        candidates = [
            option_fields(option_model)[part]
            for option_model in models
            if isinstance(part, str) and part in option_fields(option_model)
        ]
        is_value = isinstance(values, Mapping) and part in values
        is_item = isinstance(values, list | tuple) and isinstance(part, int) and part < len(values)
        if not (is_value or is_item or (candidates and index == len(loc) - 1)):
            tagged = [option_model for option_model in models if part in _tags(option_model)]
            models = tagged or models
            if tagged:
                names = [name for option_model in models for name in option_fields(option_model)]
            continue
        path.append(part)
        names = [name for option_model in models for name in option_fields(option_model)]
        if candidates:
            field = candidates[0]
            models = [inner for candidate in candidates for inner in models_in(candidate.annotation)]
        elif models:
            field = None
        values = values[part] if is_value or is_item else None
    return tuple(path), list(dict.fromkeys(names)), field


def models_in(annotation: Any) -> list[type[Options]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def _tags(model: type[Options]) -> list[str]:
    """The words that distinguish a model from others in a union."""
    return [word for field in model.model_fields.values() for word in literals(field.annotation)]


def _either(first: Mistake, second: Mistake) -> Mistake:
    """Both of two mistakes about one value as one."""
    before, must, wanted = first.text.partition(" must be ")
    _, also, alternative = second.text.partition(" must be ")
    if not (must and also):
        return first
    wanted, separator, value = wanted.rpartition(", got ")
    alternative = alternative.rpartition(", got ")[0]
    if not alternative or alternative in wanted:
        return first
    return replace(first, text=f"{before} must be {wanted} or {alternative}{separator}{value}")


def _missing(name: str, setting: FromSetting | None, owner: OptionsOwner) -> Mistake:
    text = f"the option '{name}' is missing"
    if setting is None:
        return Mistake("MISSING", (name,), text, f"add {owner.written(name)}")
    example = owner.written(name, repr(setting.example).replace("'", '"'))
    hint = f"add {example}, or set {setting.variable}"
    return Mistake("MISSING", (name,), text, hint, setting.code)


def _shown(value: Any, name: str, field: FieldInfo | None) -> str:
    """A value for people: nested ones and fields that are not part of `repr` show their type, and no secret is shown."""
    plain = isinstance(value, str | int | float | timedelta) and (field is None or field.repr)
    return repr(hidden_values({name: value})[name]) if plain else type(value).__name__


def _error(mistakes: Sequence[Mistake], model: type[Options], owner: OptionsOwner) -> ConfigError:
    kinds = {mistake.kind for mistake in mistakes}
    code = f"{owner.code}_{mistakes[0].kind}" if len(kinds) == 1 else SEVERAL
    if len(mistakes) > 1:
        text = f"{owner.name}: {'; '.join(mistake.text for mistake in mistakes)}"
        return ConfigError(text, code=code, hint=_hint(mistakes, model))
    [only] = mistakes
    sentences = {
        "UNKNOWN": f"{owner.name} has no option '{only.name}'",
        "MISSING": f"{owner.name} needs the option '{only.name}'",
        "VALUE": f"{owner.name}: {only.text}",
    }
    return ConfigError(sentences[only.kind], code=only.code or code, hint=_hint(mistakes, model))


def _hint(mistakes: Sequence[Mistake], model: type[Options]) -> str | None:
    unknown = [mistake.name for mistake in mistakes if mistake.kind == "UNKNOWN"]
    hints = [_unknown_hint(unknown, model)] if unknown else []
    hints += [mistake.hint for mistake in mistakes if mistake.hint]
    return "; ".join(dict.fromkeys(hints)) or None


def _unknown_hint(unknown: Sequence[str], model: type[Options]) -> str:
    names = list(option_fields(model))
    if not names:
        return "it has none"
    if len(unknown) == 1:
        hint = suggest(unknown[0], names, what="option")
    else:
        pairs = [f"'{near}' for '{name}'" for name in unknown if (near := nearest(name, names)) is not None]
        listing = f"Known options: {', '.join(sorted(names))}"
        hint = f"did you mean {', '.join(pairs)}? {listing}" if pairs else listing
    if model.other_options is not None and model.other_options.prefix:
        hint += f"; others begin with '{model.other_options.prefix}'"
    return hint


def _as_milliseconds(value: Any) -> int:
    try:
        return milliseconds(value, what="it")
    except ConfigError as error:
        raise mistake(error.message.removeprefix("it "), hint=error.hint) from None


def _as_count(value: Any) -> int:
    number = 0
    if isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            number = int(value)
    if number < 1:
        raise mistake(f"must be a whole number above 0, got {value!r}")
    if number > _MOST:
        raise mistake(f"must be {_MOST:,} at most")
    return number


def _as_names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (str(value),) if is_number else value


def _as_expressions(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _as_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise mistake(f"must be a dictionary, got {type(value).__name__}")
    for name, item in value.items():
        if item is None or isinstance(item, Mapping | list | tuple):
            raise mistake(
                f"must have texts, got {type(item).__name__} for '{name}'", hint='"" is an empty text'
            )
    return {str(name): _text(item) for name, item in value.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_path(value: Any) -> Any:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str) and "\0" in path:
        raise mistake("has the character U+0000, which no file has in its name")
    return path


def _as_lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


Duration = Annotated[
    int,
    BeforeValidator(_as_milliseconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "milliseconds"},
                {"type": "string", "examples": ["500 ms", "5 seconds", "1 hour 30 minutes"]},
            ]
        }
    ),
]
"""A duration as users write it; its value is milliseconds."""

Count = Annotated[int, Field(gt=0), BeforeValidator(_as_count)]
"""A whole number above 0."""

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""Names in a list, or in one text with commas between them."""

Expressions = Annotated[
    str,
    BeforeValidator(_as_expressions),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""Expressions of SQL in a list, or in one text with commas between them; its value is the text."""

Texts = Annotated[
    dict[str, str],
    BeforeValidator(_as_texts),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
"""A dictionary of texts; numbers are taken as their text."""

PathText = Annotated[str, BeforeValidator(_as_path)]
"""A path or the URI of an object store."""

IgnoringCase = BeforeValidator(_as_lower)
"""Goes with a Literal of lower-case words."""
