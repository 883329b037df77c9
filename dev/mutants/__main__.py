"""`make mutants`: which changes of the modules that guard what serves does no test notice?

mutmut makes the changes and runs the tests of each changed function, in a copy of this tree in build/mutants. A run
fails where fewer than LEAST of the changes of a module are noticed. Not every change can be: some make no difference,
most others change a text that users read. The last line is one JSON object; `--show` prints the changes that stayed
unnoticed, and names of modules restrict a run to them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutants"
PACKAGE = "speculative_operator"
TUNER = ("tests/unit/tuner", "tests/harm/test_guard_quorum.py", "tests/harm/test_guard_outage.py")
RECONCILE = ("tests/unit/reconcile", "tests/harm/test_rollouts_of_the_tuner.py",
             "tests/harm/test_rollouts_of_an_upgrade.py", "tests/harm/test_rollouts_of_live_tables.py",
             "tests/harm/test_tables_belong_to_a_pair.py",
             "tests/harm/test_tables_made_by_hand_are_never_adopted.py")  # fmt: skip
MODULES = {
    "tuner/guards": TUNER,
    "tuner/quorum": TUNER,
    "tuner/decide": TUNER,
    "tuner/rollout": TUNER,
    "reconcile/children/plan": RECONCILE,
    "reconcile/table/own_rollouts": RECONCILE,
    "reconcile/children/upgrade": RECONCILE,
    "reconcile/table/tables": RECONCILE,
}
LEAST = 0.6
"""Share of the changes that must be noticed, for each module."""
SURVIVED, UNTESTED = 0, 33
"""Exit codes of the tests of a change, as mutmut keeps them."""
# mutmut takes source below `src` alone, and finds its settings in the folder in which it runs.
SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only}
also_copy = {also}
pytest_add_cli_args = ["-q", "-x"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
track_dependencies = false
[tool.pytest.ini_options]
pythonpath = ["src", "lab", "dev", "."]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:timeout"]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
"""


def copied(modules: list[str]) -> None:
    """A copy of the tree, with the operator where mutmut looks for it."""
    shutil.rmtree(COPY, ignore_errors=True)
    told = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in told:
        target = COPY / ("src" + name.removeprefix("operator") if name.startswith("operator/") else name)
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    also = sorted(one.name for one in COPY.iterdir() if one.name not in ("src", "tests", ".git"))
    only = [f"src/{PACKAGE}/{module}.py" for module in modules]
    tests = sorted({path for module in modules for path in MODULES[module]})
    (COPY / "pyproject.toml").write_text(
        SETTINGS.format(only=json.dumps(only), also=json.dumps(also), tests=json.dumps(tests))
    )


def codes(module: str) -> dict[str, int | None]:
    """Exit code of the tests of each change of a module."""
    path = COPY / "mutants" / "src" / PACKAGE / f"{module}.py.meta"
    found: dict[str, int | None] = json.loads(path.read_text())["exit_code_by_key"]
    return found


def unnoticed(module: str) -> list[str]:
    return [name for name, code in codes(module).items() if code in (SURVIVED, UNTESTED)]


def summary(modules: list[str]) -> dict[str, Any]:
    """How many changes of each module were made and noticed."""
    rows: dict[str, dict[str, Any]] = {}
    for module in modules:
        made, left = len(codes(module)), unnoticed(module)
        rows[module] = {
            "made": made,
            "noticed": round(1 - len(left) / made, 3) if made else 0.0,
            "unnoticed": sorted(left),
        }
    unfinished = [name for module in modules for name, code in codes(module).items() if code is None]
    return {"ok": not unfinished and all(row["noticed"] >= LEAST for row in rows.values()), "modules": rows}


def mutmut(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    show = args[0] == "show"
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *args],
        cwd=COPY, env=environment, text=True, check=False, stdout=subprocess.PIPE if show else sys.stderr,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}")
    parser.add_argument("--show", action="store_true", help="print every change that no test noticed")
    given = parser.parse_args()
    modules = given.modules or list(MODULES)
    if unknown := set(modules) - MODULES.keys():
        parser.error(f"no such module: {', '.join(sorted(unknown))}")
    copied(modules)
    if mutmut("run", "--max-children", str(os.cpu_count() or 2)).returncode != 0:
        print(json.dumps({"ok": False, "error": "mutmut ended with an error, see above"}))
        return 1
    found = summary(modules)
    for name in [one for row in found["modules"].values() for one in row["unnoticed"]] if given.show else []:
        print(f"{name}\n{mutmut('show', name).stdout}", file=sys.stderr)
    print(json.dumps(found), flush=True)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
