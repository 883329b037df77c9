"""Prints random docstrings, messages and function names of the product: does each name its subject at first reading?

Messages are the texts of log lines, conditions, refusals, notices and failures. The same seed draws the same from the
same code.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "operator" / "speculative_operator"
_SPEAKING = {"Condition", "Refusal", "Notice", "Failure", "Event", "SpecError", "CommandError", "SettingsError"}
_LOGGING = {"debug", "info", "warning", "error", "exception"}
_NAMES = {"message", "remedy", "why"}
_LEAST_WORDS = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Print the three samples; always 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--root", type=Path, default=ROOT, help="the package to draw from")
    chosen = parser.parse_args(argv)
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(chosen.root.rglob("*.py"))}
    for title, draw in (("docstrings", docstrings), ("messages", messages), ("functions", functions)):
        found = sorted({one for path, tree in trees.items() for one in draw(tree, _module(path, chosen.root))})
        rng = random.Random(f"{chosen.seed} {title}")  # noqa: S311  (a sample, no secret)
        sys.stdout.write(f"## {title}: {chosen.count} of {len(found)}\n")
        for number, one in enumerate(rng.sample(found, min(chosen.count, len(found))), 1):
            sys.stdout.write(f"{number:>3} {one}\n")
    return 0


def docstrings(tree: ast.Module, module: str) -> Iterator[str]:
    """First paragraph of each docstring of a function or class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            text := ast.get_docstring(node)
        ):
            yield f"{module}.{node.name}: {' '.join(text.partition(chr(10) * 2)[0].split())}"


def functions(tree: ast.Module, module: str) -> Iterator[str]:
    """Each function and method by its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            yield f"{module}.{node.name}({', '.join(one.arg for one in node.args.args if one.arg != 'self')})"


def messages(tree: ast.Module, module: str) -> Iterator[str]:
    """Texts that reach people, with `{}` in place of values."""
    for node in ast.walk(tree):
        spoken: list[ast.expr] = []
        if isinstance(node, ast.Call):
            named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            spoken = list(node.args) if named in _SPEAKING | _LOGGING else []
        elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") in _NAMES for one in node.targets):
            spoken = [node.value]
        for one in spoken:
            text = _text(one)
            if len(text.split()) >= _LEAST_WORDS:
                yield f"{module}: {text}"


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return ""


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts)


if __name__ == "__main__":
    raise SystemExit(main())
