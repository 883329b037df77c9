"""Trees on a terminal or in a pipe, drawn by rich. Used by `status`, and by its picture in docs/."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from speculative_operator.cli.cluster import plain

if TYPE_CHECKING:
    from rich.tree import Tree

_LONGEST = 10_000
"""Columns of a pipe, so many that lines are never broken there."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line, and the branches below it."""

    text: str
    below: list[Branch] = field(default_factory=list)


def write(out: TextIO, root: Branch) -> None:
    """Draw a tree; only indented where rich is not installed."""
    try:
        from rich.console import Console

        plain_text = "NO_COLOR" in os.environ
        width = None if out.isatty() else _LONGEST
        Console(file=out, width=width, color_system=None if plain_text else "auto").print(draw_tree(root))
    except ImportError:
        out.writelines(f"{line}\n" for line in lines(root))
    out.flush()


def draw_tree(branch: Branch) -> Tree:
    """The tree for a console. Raises ImportError without rich."""
    from rich.tree import Tree

    from speculative_operator.cli.colours import colour

    made = Tree(colour(plain(branch.text)), guide_style="dim")
    made.children = [draw_tree(one) for one in branch.below]
    return made


def lines(branch: Branch, depth: int = 0) -> Iterator[str]:
    """Yield the lines of the tree, each indented by its depth."""
    yield "  " * depth + plain(branch.text)
    for one in branch.below:
        yield from lines(one, depth + 1)
