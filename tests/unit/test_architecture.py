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
    "engines": {"domain", "physics"},
    "pairing": {"domain", "physics"},
    "sim": {"domain", "physics", "tuner", "engines"},
    "api": {"domain"},
    "render": {"domain", "engines"},
    "reconcile": {"domain", "physics", "tuner", "engines", "pairing", "render"},
    "payload": set(),
    "emulator": {"domain", "physics"},
    "settings": set(),
    "shell": {"domain", "engines", "render", "reconcile", "tuner", "api", "settings"},
    "app": {"domain", "engines", "render", "reconcile", "tuner", "api", "settings", "shell"},
    "cli": {
        "domain", "physics", "tuner", "engines", "pairing", "sim", "render", "reconcile", "api", "settings", "shell",
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


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_point_one_way(module: Path) -> None:
    own = room(module)
    if own == "__init__":
        assert not {name for name in imported(module) if name.startswith("speculative_operator")}
        return
    rooms = {
        name.split(".")[1] for name in imported(module) if name.startswith("speculative_operator.") and "." in name
    }
    assert rooms <= MAY_IMPORT[own] | {own, "__version__"}, (
        f"{own} must not import {sorted(rooms - MAY_IMPORT[own] - {own})}"
    )


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) in PURE], ids=lambda m: str(m.relative_to(PACKAGE)))
def test_core_does_no_io(module: Path) -> None:
    roots = {name.split(".")[0] for name in imported(module)}
    assert not roots & IMPURE_MODULES


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_libraries_stay_in_their_rooms(module: Path) -> None:
    roots = {name.split(".")[0] for name in imported(module)}
    for library, rooms in ONLY_IN.items():
        assert library not in roots or room(module) in rooms, f"{library} belongs in {sorted(rooms)}"


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
