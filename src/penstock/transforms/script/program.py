"""What Deno runs: the host, the script, and between them a generated program that knows the columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from penstock.transforms.json_columns.kind import column_kind

MAIN = "main.js"
INVOKE = "penstock_invoke"
"""The name under which the script's function is exported, beside what the script itself exports."""

_MAIN = """\
import {{ serve, unknownField, writers }} from "./host.js";
import {{ {invoke} as invoke }} from "./script/{file}";

const write = writers({outputs});
const names = new Set({names});

function setUp(columns, out) {{
  const [{inputs}] = columns;
  const [{columns}] = out;
  const [{writers}] = write;
  const row = (at) => ({{ {fields} }});
  const add = (value, at) => {{
    let field, known = 0, all = 0;
{puts}
    for (const _ in value) all++;
    if (all !== known) unknownField(value, names);
  }};
  return {{ row, add }};
}}

await serve({{ invoke, file: {name}, types: {types}, width: {width}, setUp }});
"""
_PUT = """\
    field = value[{name}];
    if (field === undefined) o{at}[at] = null;
    else {{ known++; o{at}[at] = field === null ? null : w{at}(field); }}"""


@dataclass(frozen=True, slots=True)
class Program:
    """A script with the columns that it takes and gives; the same program is the same process of Deno."""

    file: str
    """The name of the script's file, as errors show it."""
    script: str
    in_schema: pa.Schema
    out_schema: pa.Schema
    bigint: bool = False

    def write(self, folder: Path) -> Path:
        """Put the files into a folder; return the one that Deno starts with."""
        (folder / "script").mkdir()
        (folder / "script" / self.file).write_text(self.exported(), encoding="utf-8")
        host = files("penstock.transforms.script").joinpath("host.js").read_text(encoding="utf-8")
        (folder / "host.js").write_text(host, encoding="utf-8")
        main = folder / MAIN
        main.write_text(self.main(), encoding="utf-8")
        return main

    def exported(self) -> str:
        """The script with its function for the host; the lines keep their numbers."""
        return f"{self.script}\n;export {{ invoke as {INVOKE} }};\n"

    def main(self) -> str:
        """The program that makes rows of columns and columns of rows."""
        inputs, outputs = range(len(self.in_schema)), range(len(self.out_schema))
        puts = [_PUT.format(name=_text(field.name), at=at) for at, field in enumerate(self.out_schema)]
        return _MAIN.format(
            invoke=INVOKE,
            file=self.file,
            outputs=json.dumps([[field.name, column_kind(field)] for field in self.out_schema]),
            names=json.dumps(self.out_schema.names),
            inputs=", ".join(f"c{at}" for at in inputs),
            columns=", ".join(f"o{at}" for at in outputs),
            writers=", ".join(f"w{at}" for at in outputs),
            fields=", ".join(f"{_name(field.name)}: c{at}[at]" for at, field in enumerate(self.in_schema)),
            puts="\n".join(puts),
            name=_text(self.file),
            types=json.dumps([column_kind(field) for field in self.in_schema]),
            width=len(self.out_schema),
        )


def _text(value: str) -> str:
    return json.dumps(value)


def _name(column: str) -> str:
    # As a plain name it would set the prototype of the row.
    return '["__proto__"]' if column == "__proto__" else _text(column)
