"""The command lines of the emulated engines: flags of data/flags.csv, exit code 2 for any that is not there.

Called by each dialect; gives a plain namespace. A flag that only has to be taken, since it changes nothing here, is in
the table as any other is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from speculative_lab.emulator import NOTICE, VLLM_VERSION, notice, rows

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


_OPTIONS: dict[str, dict[str, Any]] = {
    "text": {},
    "texts": {"nargs": "+"},
    "int": {"type": int},
    "ints": {"type": int, "nargs": "+"},
    "human_int": {"type": human_int},
    "float": {"type": float},
    "json": {"type": json_value},
    "toggle": {"action": argparse.BooleanOptionalAction},
    "switch": {"action": "store_true"},
}
"""Kinds of the table; a toggle is `--flag` and `--no-flag`, a switch `--flag` alone."""


def add_flags(parser: argparse.ArgumentParser, engine: str) -> None:
    """Teach a parser the flags of an engine."""
    for row in rows("flags.csv"):
        if row["engine"] != engine:
            continue
        names, options = row["names"].split(), dict(_OPTIONS[row["kind"]])
        if row["choices"]:
            options["choices"] = row["choices"].split()
        if row["kind"] != "switch":
            options["default"] = row["default"] or None
        parser.add_argument(*names, **options)


def parser_of(engine: str, version: str) -> argparse.ArgumentParser:
    """A parser of an engine that is started without a subcommand."""
    parser = argparse.ArgumentParser(description=notice(version), allow_abbrev=False)
    parser.add_argument("--version", action="version", version=notice(version))
    add_flags(parser, engine)
    return parser


def parser() -> argparse.ArgumentParser:
    """`vllm-emulator [-v] serve [MODEL] [flags]`."""
    root = argparse.ArgumentParser(prog="vllm-emulator", description=NOTICE, allow_abbrev=False)
    root.add_argument("-v", "--version", action="version", version=f"{VLLM_VERSION} ({NOTICE})")
    commands = root.add_subparsers(required=True, dest="command")
    serve = commands.add_parser("serve", help="serve the emulated engine", description=NOTICE, allow_abbrev=False)
    serve.add_argument("model_tag", nargs="?", metavar="MODEL", help="the verifier to serve")
    add_flags(serve, "vLLM")
    return root


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Namespace of vLLM's `argv` (without the program's name). Raises SystemExit(2) as argparse does.

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
