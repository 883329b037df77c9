"""The shape of the house: imports point one way, the core does no I/O, modules stay readable."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "speculative_operator"

MAY_IMPORT = {
    "domain": set(),
    "physics": {"domain"},
    "tuner": {"domain", "physics"},
    "engines": {"domain", "physics", "pairing"},
    "pairing": {"domain", "physics"},
    "own_folder": set(),
    "weights": {"domain", "own_folder"},
    "compiled": {"own_folder"},
    "sim": {"domain", "physics", "tuner", "engines", "payload"},
    "api": {"domain"},
    "render": {"domain", "engines"},
    "reconcile": {"domain", "physics", "tuner", "engines", "pairing", "render"},
    "payload": set(),
    "emulator": {"domain", "physics"},
    "settings": {"domain"},
    "shell": {"domain", "engines", "render", "reconcile", "tuner", "api", "settings"},
    "app": {"domain", "engines", "render", "reconcile", "tuner", "api", "settings", "shell"},
    "cli": {
        "domain", "physics", "tuner", "engines", "pairing", "weights", "sim", "render", "reconcile", "api", "settings",
        "shell",
    },
    "__main__": {"app"},
}  # fmt: skip
PURE = {"domain", "physics", "tuner", "engines", "pairing", "sim", "render", "reconcile"}
IMPURE_MODULES = {
    "aiohttp", "asyncio", "datetime.now", "httpx", "kopf", "kubernetes", "logging", "prometheus_api_client",
    "random", "requests", "secrets", "socket", "subprocess", "threading", "time", "urllib",
}  # fmt: skip
ONLY_IN = {"pydantic": {"api", "settings", "app"}, "kopf": {"shell", "app"}, "prometheus_api_client": {"shell"}}

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@cache
def imported(module: Path) -> frozenset[str]:
    """Absolute names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import; the project imports by full name"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def allowed(module: Path) -> set[str]:
    own = room(module)
    return set() if own == "__init__" else MAY_IMPORT[own] | {own, "__version__"}


def test_imports_point_one_way() -> None:
    beyond: dict[str, set[str]] = {}
    for module in MODULES:
        ours = {name for name in imported(module) if name.startswith("speculative_operator.")}
        if rooms := {name.split(".")[1] for name in ours} - allowed(module):
            beyond[str(module.relative_to(PACKAGE))] = rooms
    assert beyond == {}, "modules import rooms that theirs must not"


def roots(module: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(module)}


def test_core_does_no_io() -> None:
    found = {str(module): roots(module) & IMPURE_MODULES for module in MODULES if room(module) in PURE}
    assert len(found) > 100
    assert {module: names for module, names in found.items() if names} == {}


def test_libraries_stay_in_their_rooms() -> None:
    strayed = {
        str(module): library
        for module in MODULES
        for library, rooms in ONLY_IN.items()
        if library in roots(module) and room(module) not in rooms
    }
    assert strayed == {}


@pytest.mark.parametrize(
    "module", [*MODULES, *sorted((ROOT / "dev").rglob("*.py"))], ids=lambda m: str(m.relative_to(ROOT))
)
def test_modules_say_why_and_stay_short(module: Path) -> None:
    text = module.read_text()
    assert ast.get_docstring(tree(module)), "a module says in its docstring why it exists"
    assert len(text.splitlines()) <= 400
    assert module.stem not in {"utils", "util", "helpers", "common", "misc"}


def test_source_root_is_no_package() -> None:
    """operator/ on the path must not hide the standard library's `operator`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, sys; sys.exit('speculative' in (operator.__file__ or ''))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "operator", check=False).returncode == 0


def test_development_cluster_is_not_imported_by_the_operator() -> None:
    dev = {path.name for path in (ROOT / "dev").iterdir() if path.is_dir()}
    for module in MODULES:
        assert not {name.split(".")[0] for name in imported(module)} & dev
