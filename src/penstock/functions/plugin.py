"""Scalar functions of other packages: Arrow arrays in, an Arrow array out, known to SQL by a name.

    @ps.scalar_function("STRING", arguments=["STRING"])
    def initials(names):
        return pc.utf8_slice_codeunits(names, 0, 1)

A package offers it through an entry point in the group `penstock.functions`; the name of the entry point is that of
the function in SQL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from penstock.data.schema import to_arrow_type
from penstock.errors import ConfigError, DataError, PenstockError
from penstock.registry import load_entry_point

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "penstock.functions"
LOG = logging.getLogger("penstock.functions")


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of rows, with the types that it takes and gives; it can be called as it was written."""

    call: Callable[..., Any]
    returns: str
    """Spark's type of its result."""
    arguments: tuple[str, ...] | None = None
    """Spark's types of its arguments; None: it takes what comes."""
    deterministic: bool = True

    def __call__(self, *arrays: Any) -> Any:
        return self.call(*arrays)

    def checked(self, name: str, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the result for the arrays of a batch, in its type; `name` is that in SQL, for errors."""
        import pyarrow as pa

        where = f"the function {name}"
        if self.arguments is not None:
            if len(arrays) != len(self.arguments):
                raise DataError(
                    f"{where} takes {len(self.arguments)} arguments, got {len(arrays)}",
                    code="FUNCTION_ARGUMENTS",
                    hint=f"its arguments are {', '.join(self.arguments)}",
                )
            arrays = [
                _cast(array, kind, f"argument {number}", where)
                for number, (array, kind) in enumerate(zip(arrays, self.arguments, strict=True), 1)
            ]
        rows = len(arrays[0]) if arrays else None
        try:
            result = self.call(*arrays)
        except PenstockError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise DataError(f"{where} failed: {reason}", code="FUNCTION_FAILED") from error
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise DataError(
                f"{where} gave {type(result).__name__}, and a result is a pyarrow.Array",
                code="FUNCTION_RESULT",
            )
        if rows is not None and len(result) != rows:
            raise DataError(f"{where} gave {len(result)} values for {rows} rows", code="FUNCTION_RESULT")
        return _cast(result, self.returns, "result", where)


def scalar_function(
    returns: str, *, arguments: Sequence[str] | None = None, deterministic: bool = True
) -> Callable[[Callable[..., Any]], ScalarFunction]:
    """Make a function of Arrow arrays one of SQL; types are Spark's or Arrow's names.

    >>> @scalar_function("BIGINT", arguments=["BIGINT"])
    ... def double(numbers):
    ...     return pc.multiply(numbers, 2)
    """
    for kind in (returns, *(arguments or ())):
        to_arrow_type(kind)  # refuses what is no type, where it is written

    def declared(call: Callable[..., Any]) -> ScalarFunction:
        return ScalarFunction(call, returns, None if arguments is None else tuple(arguments), deterministic)

    return declared


def installed_functions() -> Mapping[str, ScalarFunction]:
    """Return the functions of the packages that are installed, by their names in SQL; one that cannot be loaded is
    left out, and logged."""
    functions = {}
    for point in entry_points(group=GROUP):
        try:
            functions[point.name] = _loaded(point)
        except PenstockError as error:
            LOG.warning("%s; SQL does not know the function", error.message)
    return functions


def refusal(name: str) -> PenstockError | None:
    """Return why a function that is installed could not be loaded, by its name in SQL; None when it could, or there is none."""
    for point in entry_points(group=GROUP):
        if point.name.lower() == name.lower():
            try:
                _loaded(point)
            except PenstockError as error:
                return error
    return None


def _loaded(point: EntryPoint) -> ScalarFunction:
    function = load_entry_point(point, "function plugin")
    if not isinstance(function, ScalarFunction):
        raise ConfigError(
            f"'{point.name}' is no function plugin: {function!r}",
            code="PLUGIN_KIND",
            hint='write @penstock.scalar_function("BIGINT") above it',
        )
    return function


def _cast(array: pa.Array, kind: str, what: str, where: str) -> pa.Array:
    import pyarrow as pa

    from penstock.data.conform import conform

    wanted = to_arrow_type(kind)
    if array.type == wanted:
        return array
    table = pa.table({what: array})
    return conform(table, [(what, wanted, True)], where=where)[0]
