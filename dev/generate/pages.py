"""The generated parts of pages that are otherwise written by hand, and docs/settings.md. Called by `generate`."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from generate import docs, matrix
from speculative_operator.settings import PREFIX, Settings


def engines(page: str) -> str:
    """The text of docs/engines.md with the matrix in place. Raises ValueError."""
    return placed(page, matrix.BEGIN, matrix.page(), matrix.END)


def reasons(page: str) -> str:
    """The text of docs/reasons.md with the table of reasons in place. Raises ValueError."""
    return placed(page, docs.REASONS_BEGIN, docs.reasons(), docs.REASONS_END)


def placed(page: str, begin: str, content: str, end: str) -> str:
    """`page` with `content`, from its line `begin` to its line `end`, in place of what stands between these lines.

    Raises ValueError where the two lines are not there once and in order.
    """
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in rest or end in after:
        raise ValueError(f"the page needs one line {begin} and, below it, one line {end}")
    return f"{before}{content}{after}"


def _sentence_of(field: FieldInfo) -> str:
    return docs.shortened(
        field.description or "", "Empty", "Off", "If ", "Set ", "Turn ", "Raise ", "`none`", "`*`", "With names"
    )


def settings() -> str:
    """The whole of docs/settings.md."""
    lines = [
        "# Settings of the operator",
        "",
        "Read once at start from the environment. Generated from `settings.py` by `python -m generate`.",
        "",
    ]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = str(default).lower() if isinstance(default, bool) else str("" if default is None else default)
        lines.append(f"- `{PREFIX}{name.upper()}` ({f'`{shown}`' if shown else 'empty'}): {_sentence_of(field)}")
    return "\n".join([*lines, ""])
