"""Every field that a refusal, a remedy or another text of the product names is one that the API has."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speculative_operator.api.crd import crd

PACKAGE = Path(__file__).resolve().parents[3] / "operator" / "speculative_operator"
SPEC = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
GROUPS = [name for name, field in SPEC["properties"].items() if field.get("properties")]
PATH = re.compile(rf"(?<![\w.\]])(?:spec\.([a-z]\w*(?:\.[a-z]\w*)*)|((?:{'|'.join(GROUPS)})\.[a-z]\w*(?:\.[a-z]\w*)*))")
NO_SENTENCE = re.compile(r"^\S*$|/|self\.|\.(?:py|csv|json|yaml|md)\b")
"""Texts whose words with dots are file names, modules or CEL, unless they begin with `spec.`."""
OF_THE_POD = ("plan.py", "privileges.py")
"""Modules that name fields of a pod's or a Deployment's spec, too."""


def exists(path: str) -> bool:
    """True where `path`, below spec, is a field of the schema, or within one that takes anything."""
    at: Mapping[str, Any] = SPEC
    for part in path.split("."):
        if at.get("x-kubernetes-preserve-unknown-fields") or at.get("additionalProperties"):
            return True
        at = at.get("items", at)
        if part not in at.get("properties", {}):
            return False
        at = at["properties"][part]
    return True


def texts(module: Path) -> Iterator[str]:
    """String constants of a module that are sentences, docstrings aside; the parts of one with values are joined."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\x00" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation | parts:
            yield node.value


def named() -> Iterator[tuple[str, str]]:
    """(file, path below spec) of every field that a text names."""
    for module in PACKAGE.rglob("*.py"):
        for text in texts(module):
            for found in PATH.finditer(text) if "spec." in text or not NO_SENTENCE.search(text) else ():
                # A value in the path, as of f"spec.{side}.model", cuts it short.
                cut = text[found.end() : found.end() + 2] in ("\x00", ".\x00")
                yield module.name, (found[1] or found[2]).rpartition(".")[0] if cut else found[1] or found[2]
    for table in PACKAGE.glob("engines/data/*.csv"):
        for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
            for text in (row.get("says") or "", row.get("remedy") or ""):
                yield from ((table.name, found[1] or found[2]) for found in PATH.finditer(text))


def test_every_field_that_a_text_names_exists() -> None:
    found = {(place, path) for place, path in named() if path and place not in OF_THE_POD}
    assert len({path for _, path in found}) > 60, "the walk sees the texts"
    assert sorted((place, path) for place, path in found if not exists(path)) == []


def test_the_walk_knows_a_field_that_is_not_there() -> None:
    assert exists("verifier.lora.maxRank")
    assert exists("template.spec.nodeSelector")
    assert not exists("verifier.loras")
    assert not exists("engine.host")
