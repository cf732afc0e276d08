"""The prompt of the shell: editing over several lines, history, colours and completion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.backslash import COMMANDS
from penstock.cli.complete import CompletionNames, candidates
from penstock.sql.lexer import is_complete

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


def make_prompt(history: Path, names: CompletionNames, **streams: Any) -> PromptSession[str]:
    """Make the prompt; `streams` are prompt_toolkit's own input and output, for tests."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    history.parent.mkdir(parents=True, exist_ok=True)
    return PromptSession(
        "penstock> ",
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: "...> ".rjust(width),
        key_bindings=_keys(),
        history=FileHistory(str(history)),
        lexer=PygmentsLexer(SqlLexer),
        completer=_completer(names),
        complete_while_typing=False,
        complete_in_thread=True,
        **streams,
    )


def is_finished(typed: str) -> bool:
    """Whether Enter runs what is typed: nothing, a backslash command, a wish to leave, or ended statements."""
    text = typed.strip()
    return text.startswith("\\") or text.lower() in ("", "quit", "exit") or is_complete(typed)


def _keys() -> KeyBindings:
    from prompt_toolkit.filters import completion_is_selected
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


def _completer(names: CompletionNames) -> Completer:
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.document import Document

    class SqlCompleter(Completer):
        def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
            before = document.text_before_cursor
            if before.startswith("\\") and " " not in before:
                yield from (Completion(c, -len(before)) for c in COMMANDS if c.startswith(before))
                return
            for candidate in candidates(before.removeprefix("\\d "), names, document.text_after_cursor):
                yield Completion(candidate.text, -candidate.replaces, display_meta=candidate.kind)

    return SqlCompleter()
