"""Functions of installed packages in SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark.plugin_function import register_installed

MODULE = """
import penstock as ps
import pyarrow.compute as pc

@ps.scalar_function("STRING", arguments=["STRING", "STRING"])
def joined(left, right):
    return pc.binary_join_element_wise(left, right, "-")

@ps.scalar_function("int64", arguments=["int64"])
def strict(numbers):
    raise ValueError("never")
"""


@pytest.fixture(scope="module", autouse=True)
def package(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An installed package with functions; the session that runs already gets them as a new one would."""
    folder = tmp_path_factory.mktemp("site")
    name = f"functions_{uuid.uuid4().hex[:8]}"
    (folder / f"{name}.py").write_text(MODULE)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    broken = f"{name}_broken"
    (folder / f"{broken}.py").write_text("import sys\nsys.exit('no licence')\n")
    points = f"plugin_broken = {broken}:f\nplugin_joined = {name}:joined\nplugin_strict = {name}:strict\n"
    (info / "entry_points.txt").write_text(f"[penstock.functions]\n{points}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        register_installed(spark)
        yield
    for function in ("plugin_joined", "plugin_strict"):
        spark.sql(f"DROP TEMPORARY FUNCTION {function}")


def test_a_function_in_sql(session: ps.Session) -> None:
    query = "SELECT plugin_joined(name, 'x') AS joined FROM VALUES ('a'), (NULL), ('b') AS t(name)"
    assert [row.joined for row in session.sql(query).collect()] == ["a-x", None, "b-x"]


def test_errors_name_the_function(session: ps.Session) -> None:
    with pytest.raises(PenstockError, match="the function plugin_strict failed: ValueError: never") as failed:
        session.submit("SELECT plugin_strict(id) FROM range(3)").result(timeout=60)
    assert failed.value.code == "FUNCTION_FAILED"
    with pytest.raises(PenstockError, match="plugin_joined takes 2 arguments, got 1"):
        session.submit("SELECT plugin_joined('a') AS a").result(timeout=60)


def test_a_function_that_cannot_be_loaded_is_missed_where_it_is_used(session: ps.Session) -> None:
    why = "no function 'plugin_broken': the function plugin 'plugin_broken' cannot be imported: SystemExit: no licence"
    with pytest.raises(PenstockError, match=why) as refused:
        session.sql("SELECT plugin_broken(id) FROM range(3)")
    assert refused.value.code == "PLUGIN_IMPORT"
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("install functions_")
