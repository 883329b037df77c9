"""The generated parts of pages that are otherwise written by hand, and docs/settings.md. Called by `generate`."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from generate import docs, matrix
from speculative_operator.engines.sglang import adapter as sglang
from speculative_operator.engines.tensorrt_llm import adapter as tensorrt_llm
from speculative_operator.engines.vllm import flags as vllm
from speculative_operator.settings import PREFIX, Settings


def engines(page: str) -> str:
    """The text of docs/engines.md with the matrix in place. Raises ValueError."""
    return placed(page, matrix.BEGIN, matrix.page(), matrix.END)


ARGUMENTS = ("<!-- arguments: begin -->\n", "<!-- arguments: end -->\n")
ENGINES = {"vLLM": vllm.FLAGS, "SGLang": sglang.FLAGS, "TensorRT-LLM": tensorrt_llm.FLAGS}


def arguments(page: str) -> str:
    """The text of docs/from-an-article.md with the refused arguments in place. Raises ValueError."""
    begin, end = ARGUMENTS
    return placed(page, begin, begin + "".join(map(_refused, ENGINES)) + end, end)


def _refused(engine: str) -> str:
    """The section of an engine: what to do -> the flags that are refused with it, as one table."""
    flags, found = ENGINES[engine], dict[str, list[str]]()
    removed = {flag: row["says"] for flag, row in flags.rows.items() if row["kind"] == "removed"}
    pod = {flag: f"refused: it {row['says']}" for flag, row in flags.rows.items() if row["kind"] in ("pod", "tls")}
    for flag, says in (*flags.owned.items(), *removed.items(), *pod.items()):
        found.setdefault(says, []).append(f"`{flag}`")
    lines = (f"| {', '.join(same)} | {says} |\n" for says, same in found.items())
    return f"\n## {engine}\n\n| Argument | Instead |\n| --- | --- |\n{''.join(lines)}\n"


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
