"""The shape of the house: imports point one way, the core does no I/O, modules stay readable, nothing grows unasked."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "speculative_operator"
LABORATORY = ROOT / "lab" / "speculative_lab"

MAY_IMPORT = {
    "domain": set(),
    "physics": {"domain"},
    "tuner": {"domain", "physics"},
    "engines": {"domain", "physics", "pairing"},
    "pairing": {"domain", "physics"},
    "comparing": {"domain"},
    "outputs": {"domain"},
    "own_folder": set(),
    "weights": {"domain", "own_folder"},
    "trainer": {"domain", "api", "engines", "pairing", "training", "weights"},
    "api": {"domain"},
    "render": {"domain", "engines"},
    "reconcile": {"domain", "physics", "tuner", "engines", "pairing", "comparing", "outputs", "render"},
    "training": {"domain", "physics", "pairing", "render"},
    "payload": set(),
    "settings": {"domain", "prometheus_settings"},
    "prometheus_settings": {"domain"},
    "shell": {"domain", "engines", "comparing", "render", "reconcile", "training", "tuner", "api", "settings"},
    "app": {"domain", "engines", "render", "reconcile", "tuner", "api", "settings", "shell"},
    "cli": {
        "domain", "physics", "tuner", "engines", "pairing", "comparing", "outputs", "weights", "render", "reconcile",
        "api", "settings", "shell",
    },
    "trial": {"domain"},
    "__main__": {"app"},
}  # fmt: skip
LAB_MAY_IMPORT = {
    "emulator": {"domain", "physics"},
    "cases": {"domain", "physics"},
    "plant": {"domain", "tuner", "engines", "payload", "lab.emulator"},
    "cli": {"domain", "physics", "api", "cli", "lab.cases", "lab.plant"},
}
"""Rooms of the laboratory -> what they import of the product, and of the laboratory's other rooms."""
PURE = {
    "domain", "physics", "tuner", "engines", "pairing", "comparing", "outputs", "render", "reconcile", "training",
    "api",
}  # fmt: skip
LAB_PURE = {"cases", "plant"}
IMPURE_MODULES = {
    "aiohttp", "asyncio", "datetime.now", "httpx", "kopf", "kubernetes", "logging", "prometheus_api_client",
    "random", "requests", "secrets", "socket", "subprocess", "threading", "time", "urllib",
}  # fmt: skip
ONLY_IN = {
    "pydantic": {"api", "settings", "prometheus_settings", "app"},
    "kopf": {"shell", "app"},
    "prometheus_api_client": {"shell"},
}

WINGS = ("snapshot", "observed", "pair", "table", "children", "report")
"""Folders of `reconcile` in the order in which one object passes through them. A module imports its own wing and those
before: what a later wing has found reaches an earlier one only with the next reconcile, by status."""
TOP = {"__init__", "world", "turn", "tick"}
"""Modules beside them: what goes in and comes out, which all wings import, and the steps, which none does."""

BUDGETS = {
    "operator/speculative_operator/*.py": 854,
    "operator/speculative_operator/api/": 3_228,
    "operator/speculative_operator/cli/": 4_558,
    "operator/speculative_operator/comparing/": 1_047,
    "operator/speculative_operator/domain/": 2_709,
    "operator/speculative_operator/engines/": 4_718,
    "operator/speculative_operator/outputs/": 195,
    "operator/speculative_operator/pairing/": 3_357,
    "operator/speculative_operator/payload/": 1_922,
    "operator/speculative_operator/physics/": 922,
    "operator/speculative_operator/reconcile/": 8_781,
    "operator/speculative_operator/render/": 2_202,
    "operator/speculative_operator/shell/": 6_836,
    "operator/speculative_operator/training/": 1_094,
    "operator/speculative_operator/trainer/": 375,
    "operator/speculative_operator/tuner/": 4_847,
    "operator/speculative_operator/weights/": 3_166,
    "lab/": 8_404,
    "dev/": 24_669,
    "tests/": 75_493,
}
"""Place -> most lines of its modules, by `wc -l`: of all below a folder, or of those that a pattern names."""

MODULES = sorted(PACKAGE.rglob("*.py"))
LAB_MODULES = sorted(LABORATORY.rglob("*.py"))


def room(module: Path, package: Path = PACKAGE) -> str:
    return module.relative_to(package).parts[0].removesuffix(".py")


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


def rooms(module: Path) -> set[str]:
    """Rooms of ours that a module imports, those of the laboratory as `lab.ROOM`."""
    parts = [name.split(".") for name in imported(module)]
    product = {rest[0] for package, *rest in parts if package == "speculative_operator" and rest}
    return product | {f"lab.{rest[0] if rest else ''}" for package, *rest in parts if package == "speculative_lab"}


def allowed(module: Path) -> set[str]:
    own = room(module)
    return set() if own == "__init__" else MAY_IMPORT[own] | {own, "__version__"}


def test_imports_point_one_way() -> None:
    beyond = {str(module.relative_to(ROOT)): rooms(module) - allowed(module) for module in MODULES}
    assert {module: names for module, names in beyond.items() if names} == {}, "rooms that theirs must not import"


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts): module for module in MODULES}
    names = {name: module for name, module in names.items() if not name.endswith(".__init__")}
    todo = {name: set(imported(module) & names.keys()) - {name} for name, module in names.items()}
    while ready := {name for name, needs in todo.items() if not needs & todo.keys()}:
        todo = {name: needs for name, needs in todo.items() if name not in ready}
    assert {name: sorted(needs & todo.keys()) for name, needs in todo.items()} == {}


def test_the_laboratory_imports_the_product_and_never_the_other_way() -> None:
    beyond = {
        str(module.relative_to(ROOT)): rooms(module) - LAB_MAY_IMPORT[own] - {f"lab.{own}", "lab.", "__version__"}
        for module in LAB_MODULES
        if (own := room(module, LABORATORY)) != "__init__"
    }
    assert len(beyond) > 60
    assert {module: names for module, names in beyond.items() if names} == {}, "rooms that theirs must not import"
    assert [str(module) for module in MODULES if any(name.startswith("lab.") for name in rooms(module))] == []


def test_the_product_holds_no_room_of_the_laboratory() -> None:
    assert {room(module) for module in MODULES} == {*MAY_IMPORT, "__init__"}
    assert {path.name for path in PACKAGE.parent.iterdir() if path.suffix != ".egg-info"} == {PACKAGE.name}
    naming = {str(module.relative_to(PACKAGE)) for module in MODULES if "speculative_lab" in module.read_text()}
    assert naming == {"cli/parsers.py"}, "which finds two commands in it, where it is installed"


def inside_of(module: Path) -> str:
    """The wing of a module of `reconcile`, or its name where it is in none."""
    return module.relative_to(PACKAGE / "reconcile").parts[0].removesuffix(".py")


def wings_of(module: Path) -> set[str]:
    """Wings of `reconcile`, and its other modules, that a module imports."""
    prefix = "speculative_operator.reconcile."
    return {name.removeprefix(prefix).split(".")[0] for name in imported(module) if name.startswith(prefix)}


def test_an_object_passes_through_reconcile_without_going_back() -> None:
    own = [module for module in MODULES if room(module) == "reconcile"]
    assert {inside_of(module) for module in own} == {*WINGS, *TOP}
    before = {wing: {*WINGS[: place + 1], "world"} for place, wing in enumerate(WINGS)} | {"world": set()}
    back = {
        str(module.relative_to(PACKAGE)): sorted(later)
        for module in own
        if inside_of(module) in before and (later := wings_of(module) - before[inside_of(module)])
    }
    assert back == {}, "modules that import a wing which one object reaches after theirs"


OPAQUE = {"body", "parts", "figures", "decisions", "placement"}
"""Fields of the snapshot that hold what others wrote as it is: it may be compared and kept, and not looked into."""


def test_what_others_wrote_is_read_in_the_snapshot_alone() -> None:
    after = [one for one in MODULES if room(one) == "reconcile" and inside_of(one) not in ("snapshot", "world")]
    assert len(after) > 30
    reading = {str(one.relative_to(PACKAGE)) for one in after if "speculative_operator.domain.reading" in imported(one)}
    raw = {
        str(one.relative_to(PACKAGE)) for one in after if "speculative_operator.reconcile.world.World" in imported(one)
    }
    looking = {
        f"{one.relative_to(PACKAGE)}, line {node.lineno}"
        for one in after
        for node in ast.walk(tree(one))
        if isinstance(node, ast.Subscript | ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in OPAQUE
    }
    assert (reading, raw, looking) == (set(), {"reconcile/tick.py"}, set())


ASIDE = {"_refuse", "_pause", "_hold", "_as_made"}
"""Steps that end the tick or find nothing for the next one, and what tells whether pods stay as they were made."""


def test_the_steps_of_a_tick_return_to_no_wing_they_have_left() -> None:
    """What is observed is read everywhere; what is found out from it is found out once, in the order of the wings."""
    walked = [one for one in _walk_of("_walk", set(ASIDE)) if one[0] > 1]
    assert {place for place, _ in walked} == {2, 3, 4, 5}
    assert walked == sorted(walked, key=lambda one: one[0])


def _walk_of(name: str, passed: set[str]) -> Iterator[tuple[int, str]]:
    """(place of the wing, call) of a function of `tick` and of all that it names, each once, in the order of
    evaluation. Values that only carry what was found are left out."""
    steps = tree(PACKAGE / "reconcile" / "tick.py")
    own = {node.name: node for node in steps.body if isinstance(node, ast.FunctionDef)}
    origin = _origins(steps)
    for node in [part for statement in own[name].body for part in _evaluated(statement)]:
        step = node.id if isinstance(node, ast.Name) else ast.unparse(node.func)
        if step in own and step not in passed:
            passed.add(step)
            yield from _walk_of(step, passed)
        if isinstance(node, ast.Call) and not ast.unparse(node.func).rpartition(".")[2][0].isupper():
            asked = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if isinstance(asked, ast.Name) and asked.id in origin:
                yield WINGS.index(origin[asked.id]), f"{name}, line {node.lineno}: {ast.unparse(node.func)}"


def _origins(steps: ast.Module) -> dict[str, str]:
    """Name in `tick` -> the wing of `reconcile` that it comes from; `report` for what `turn` makes of all of them."""
    origin: dict[str, str] = {}
    for node in ast.walk(steps):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("speculative_operator.reconcile."):
            inside = (node.module or "").split(".")[2]
            wing = {"turn": "report"}.get(inside, inside)
            origin |= {alias.asname or alias.name: wing for alias in node.names if wing in WINGS}
    return origin


def _evaluated(statement: ast.stmt) -> list[ast.Name | ast.Call]:
    """Names and calls of a statement in the order of evaluation, without what reports an error and ends the tick. What
    is called counts after its arguments."""
    ending = {
        id(part)
        for node in ast.walk(statement)
        if isinstance(node, ast.ExceptHandler) or (isinstance(node, ast.Return) and "stay(" in ast.unparse(node))
        for part in ast.walk(node)
    }
    called = {id(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    every = [node for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Call)]
    found = [node for node in every if id(node) not in ending | called]
    return sorted(found, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))


def roots(module: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(module)}


def test_core_does_no_io() -> None:
    pure = [module for module in MODULES if room(module) in PURE]
    pure += [module for module in LAB_MODULES if room(module, LABORATORY) in LAB_PURE]
    found = {str(module): roots(module) & IMPURE_MODULES for module in pure}
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


def test_modules_say_why_and_stay_short() -> None:
    every = [*MODULES, *LAB_MODULES, *sorted((ROOT / "dev").rglob("*.py"))]
    assert [str(module) for module in every if not ast.get_docstring(tree(module))] == [], "modules that say no purpose"
    assert [str(module) for module in every if len(module.read_text().splitlines()) > 400] == [], (
        "longer than 400 lines"
    )
    assert {module.stem for module in every} & {"utils", "util", "helpers", "common", "misc"} == set()


def test_nothing_grows_beyond_its_budget_of_lines() -> None:
    modules = {place: ROOT.glob(f"{place}**/*.py" if place.endswith("/") else place) for place in BUDGETS}
    lines = {place: sum(path.read_text().count("\n") for path in found) for place, found in modules.items()}
    assert all(lines.values()), "a place that is no more"
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in PACKAGE.glob("*/__init__.py")}
    assert packages - BUDGETS.keys() == set(), "packages without a budget"
    over = {place: f"{count} lines of {BUDGETS[place]}" for place, count in lines.items() if count > BUDGETS[place]}
    assert over == {}, "raise a budget only with a record in docs/decisions that says what the lines buy"


def test_source_root_is_no_package() -> None:
    """operator/ on the path must not hide the standard library's `operator`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, sys; sys.exit('speculative' in (operator.__file__ or ''))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "operator", check=False).returncode == 0


def test_development_programs_are_imported_by_nothing_that_is_installed() -> None:
    dev = {path.name for path in (ROOT / "dev").iterdir() if path.is_dir()}
    for module in [*MODULES, *LAB_MODULES]:
        assert not {name.split(".")[0] for name in imported(module)} & dev
