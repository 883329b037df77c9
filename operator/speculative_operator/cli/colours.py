"""Colours of `status` and `explain` on a terminal. Used by both, and by the picture of docs/cli.md."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = (
    (r"█+", "green"),
    (r"<- (load now|active)", "bold yellow"),
    (r"^ *(waits|warning|proposes|also)(?= )", "bold red"),
    (r"^ *[a-z]+(?=  |$)", "cyan"),
    (r"\+\d+\.\d ?%", "bold green"),
    (r"-\d+\.\d ?%", "bold red"),
)


def colour(line: str) -> Text:
    """One line of text with its colours. Raises ImportError without rich."""
    from rich.text import Text

    text = Text(line)
    for pattern, style in reversed(_STYLES):
        text.highlight_regex(pattern, style)
    return text


def write(out: TextIO, text: str) -> None:
    """Write lines; with colours where `out` is a terminal and rich is installed, unless NO_COLOR is set."""
    if out.isatty() and "NO_COLOR" not in os.environ:
        try:
            from rich.console import Console

            console = Console(file=out)
            for line in text.split("\n"):
                console.print(colour(line), soft_wrap=True)
            return
        except ImportError:
            pass
    out.write(f"{text}\n")
    out.flush()
