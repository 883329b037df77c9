"""The argument parser of the emulator: vLLM's flags, exit code 2 and a usage line for what it does not know.

Called by `__main__`; gives a plain namespace that `config` turns into an `EngineConfig`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from speculative_lab.emulator import NOTICE, VLLM_VERSION
from speculative_lab.emulator.flags import UNDERSTOOD, Flag, Kind

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def human_int(text: str) -> int:
    """`4096`, `4k` (4000), `4K` (4096), `1.5M`; -1 is allowed (vLLM: choose for me)."""
    factor = _SUFFIXES.get(text[-1:], 1)
    number = text[:-1] if factor > 1 else text
    try:
        value = float(number) * factor if factor > 1 else int(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {int}.") from None
    if value != int(value):
        raise argparse.ArgumentTypeError(f"Value {text} is not a whole number.")
    return int(value)


def json_value(text: str) -> Any:
    """A JSON text; anything else is an argument error."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {json.loads}.") from None


_OPTIONS: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": str},
    Kind.TEXTS: {"type": str, "nargs": "+"},
    Kind.INT: {"type": int},
    Kind.INTS: {"type": int, "nargs": "+"},
    Kind.HUMAN_INT: {"type": human_int},
    Kind.FLOAT: {"type": float},
    Kind.JSON: {"type": json_value},
    Kind.TOGGLE: {"action": argparse.BooleanOptionalAction},
    Kind.SWITCH: {"action": "store_true"},
}


def parser() -> argparse.ArgumentParser:
    """`vllm-emulator [-v] serve [MODEL] [flags]`."""
    root = argparse.ArgumentParser(prog="vllm-emulator", description=NOTICE, allow_abbrev=False)
    root.add_argument("-v", "--version", action="version", version=f"{VLLM_VERSION} ({NOTICE})")
    commands = root.add_subparsers(required=True, dest="command")
    serve = commands.add_parser("serve", help="serve the emulated engine", description=NOTICE, allow_abbrev=False)
    serve.add_argument("model_tag", nargs="?", metavar="MODEL", help="the verifier to serve")
    for flag in UNDERSTOOD:
        add(serve, flag)
    return root


def add(target: argparse.ArgumentParser, flag: Flag) -> None:
    """Teach a parser one flag."""
    options = dict(_OPTIONS[flag.kind], default=bool(flag.default) if flag.kind is Kind.SWITCH else flag.default)
    if flag.choices:
        options["choices"] = flag.choices
    target.add_argument(*flag.names, **options)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Namespace of `argv` (without the program's name). Raises SystemExit(2) as argparse does.

    Underscores in flag names count as dashes, as in vLLM.
    """
    namespace = parser().parse_args([_dashes(word) for word in argv])
    namespace.model = namespace.model_tag or namespace.model or DEFAULT_MODEL
    return namespace


def _dashes(word: str) -> str:
    """`--max_num_seqs=4` as `--max-num-seqs=4`; values are left alone."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
