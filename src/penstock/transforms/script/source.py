"""The text of a script: its name in errors, and what it must not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<word>[A-Za-z_$\u0080-\uffff][\w$]*)
  | (?P<space>\s+)
  | (?P<number>\d[\w.]*)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IMPORT = re.compile(r"\bimport\b")
_REEXPORT = re.compile(r"\bexport\b")
_DIRECTIVE = re.compile(r"<\s*reference\b|@(?:deno|ts-self)-types|@jsxImportSource")
"""Comments by which a script in TypeScript names other files."""
_NAMES_A_FIELD = (":", "=", ",", ")", "}", ";")


def file_name(node: str, *, typescript: bool) -> str:
    """Return the name of a script's file, which its errors show.

    >>> file_name("by.customer", typescript=True)
    'by.customer.ts'
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", node) + (".ts" if typescript else ".js")


def names_invoke(script: str) -> bool:
    """Say whether a script mentions `invoke`; whether that is a function only Deno can tell."""
    return re.search(r"\binvoke\b", script) is not None


def forbidden_import(script: str) -> tuple[int, int] | None:
    """Return the line and column of the first import, as far as that can be seen without a parser of JavaScript.

    Deno loads what a static import names without asking for a permission. Comments and texts are left out, so that
    they may speak of imports; where a regular expression or a template hides the end of a text, `Program.check` sees
    what Deno's own parser sees.

    >>> forbidden_import("const a = 1;\\nimport b from './b.js';")
    (2, 1)
    >>> forbidden_import("// import duties\\nrow.import = 'import x'; ({import: 1})")
    """
    if not mentions_import(script):
        return None
    tokens = [match for match in _TOKEN.finditer(script) if match.lastgroup not in ("comment", "space")]
    for index, token in enumerate(tokens):
        if token["word"] not in ("import", "export") or (index and tokens[index - 1][0] == "."):
            continue
        if _imports(token[0], (following[0] for following in islice(tokens, index + 1, None))):
            at = token.start()
            return script.count("\n", 0, at) + 1, at - script.rfind("\n", 0, at)
    return None


def mentions_import(script: str) -> bool:
    """Say whether there are words in a script, be it in a comment, with which an import could be made."""
    words = (_IMPORT, _DIRECTIVE)
    reexports = _REEXPORT.search(script) is not None and re.search(r"\bfrom\b", script) is not None
    return reexports or any(word.search(script) is not None for word in words)


def _imports(word: str, following: Iterator[str]) -> bool:
    """Say whether `import` or `export` names another module, by the tokens behind it."""
    first = next(following, "")
    if word == "import":
        return first not in _NAMES_A_FIELD and not (first == "." and next(following, "") == "meta")
    if first == "{":
        return "}" in following and next(following, "") == "from"
    return first == "*"
