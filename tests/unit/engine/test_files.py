from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.engine.files import File, resolve_files
from penstock.errors import SqlError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    (data / "days" / "day=1").mkdir(parents=True)
    (data / "mixed").mkdir()
    (data / "empty").mkdir()
    (data / "orders.parquet").touch()
    (data / "stores.csv").write_text("id\n1\n")
    (data / "list.json").write_text('[\n{"a": 1}\n]')
    (data / "lines.json").write_text('{"a": 1}\n{"a": 2}\n')
    (data / "notes.txt").touch()
    (data / "odd[1].csv").touch()
    with gzip.open(data / "list.json.gz", "wt") as file:
        file.write('[{"a": 1}]')
    (data / "days" / "day=1" / "part-0.orc").touch()
    (data / "days" / "_SUCCESS").touch()
    (data / "mixed" / "a.csv").touch()
    (data / "mixed" / "b.orc").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _file(path: str) -> File:
    _, files = resolve_files(f"SELECT * FROM '{path}'")
    return files[0]


def _error(path: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        _file(path)
    return caught.value


CSV = {"header": "true", "inferSchema": "true", "sep": ","}


def test_what_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder / "data"
    assert _file("data/orders.parquet") == File(str(data / "orders.parquet"), "parquet", {})
    assert _file("./data/../data/stores.csv") == File(str(data / "stores.csv"), "csv", CSV)
    assert _file(f"file://{data}/stores.csv").path == str(data / "stores.csv")
    assert _file("data/odd[1].csv").path == str(data / "odd\\[1\\].csv")
    assert _file("data/*.csv") == File(str(data / "*.csv"), "csv", CSV)
    assert _file("data/days") == File(str(data / "days"), "orc", {})
    assert _file("data/lines.json").options == {}
    assert _file("data/list.json").options == {"multiLine": "true"}
    assert _file("data/list.json.gz").options == {"multiLine": "true"}
    monkeypatch.setenv("HOME", str(folder))
    assert _file("~/data/orders.parquet").path == str(data / "orders.parquet")


def test_remote_paths_are_left_to_spark() -> None:
    assert _file("s3://bucket/a.tsv") == File("s3://bucket/a.tsv", "csv", {**CSV, "sep": "\t"})
    assert _error("s3://bucket/folder").code == "SQL_FILE_FORMAT"


def test_a_missing_file_names_the_path_that_was_tried_and_the_nearest(folder: Path) -> None:
    error = _error("data/order.parquet")
    assert error.code == "SQL_FILE_MISSING"
    assert error.message == f"no file '{folder}/data/order.parquet'"
    assert error.hint is not None
    assert error.hint.startswith("did you mean 'orders.parquet'? in ")
    assert error.where == (
        "line 1, column 15\n    SELECT * FROM 'data/order.parquet'\n                  ^^^^^^^^^^^^^^^^^^^^"
    )


def test_a_missing_folder_is_named(folder: Path) -> None:
    error = _error("dat/orders.parquet")
    assert f"the folder '{folder}/dat' does not exist" in error.message
    assert error.hint is not None
    assert "did you mean 'data/'?" in error.hint


def test_unknown_formats_list_the_known_ones() -> None:
    assert _error("data/notes.txt").message == "files with the extension '.txt' cannot be read"
    assert ".parquet .csv .tsv" in str(_error("data/notes.txt").hint)
    assert "no files to read" in _error("data/empty").message
    assert "mixes formats: csv, orc" in _error("data/mixed").message
    assert _error("data/*.xml").code == "SQL_FILE_MISSING"
