"""The option `-o` of the commands that look at a cluster: `get`, `status`, `explain` and `doctor`."""

from __future__ import annotations

import argparse
import json
from typing import Any

TEXT, WIDE, JSON, YAML = "text", "wide", "json", "yaml"


def add_arguments(parser: argparse.ArgumentParser, wide: str = "") -> None:
    """Add the option `-o`; `wide` says what that form adds, for commands that have it."""
    forms = (TEXT, WIDE, JSON, YAML) if wide else (TEXT, JSON, YAML)
    adds = f"wide: {wide}; " if wide else ""
    parser.add_argument("-o", "--output", choices=forms, default=TEXT, help=f"{adds}json, yaml: for programs")


def document(value: Any, form: str) -> str:
    """`value` as one line of JSON, or as one YAML document."""
    if form == JSON:
        return json.dumps(value)
    import yaml

    return "---\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")
