"""Programs are found or built exactly when they must be, and published whole or not at all."""

import dataclasses
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster import DevClusterError, gobuild, toolchain
from devcluster.toolchain import EXTRAS, MODULES, Module, content_key

# What `go` does as far as a build is concerned, told by files beside it: `program` is what it builds, `builds` counts.
_FAKE_GO = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
  version) echo "go version go1.26.9 linux/amd64" ;;
  build)
    echo one >> "$here/builds"
    if [ -e "$here/broken" ]; then echo "main.go:1:1: expected package" >&2; exit 1; fi
    for word; do [ "$previous" = -o ] && cp "$here/program" "$word"; previous=$word; done
    exit 0 ;;
esac
"""
_PROGRAM = """#!/bin/sh
echo "$(basename "$0") version v1.2.3+build5"
"""


def _write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def module() -> Module:
    return Module("thing", "1.2.3", ".", {"thing": ("--version",), "thingctl": ("version",)}, "-s", 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with a fake Go alone on PATH, sources of `thing`, and an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    _write_program(programs / "go", _FAKE_GO)
    _write_program(programs / "program", _PROGRAM)
    sources = tmp_path / "sources" / "thing"
    sources.mkdir(parents=True)
    for name in ("go.mod", "go.sum", "main.go"):
        (sources / name).write_text(name)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SPECULATIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(toolchain.Toolchain, "of", staticmethod(dict))
    gobuild._go_on_path.cache_clear()
    yield tmp_path
    gobuild._go_on_path.cache_clear()  # the next test's PATH is another


def _ensure(module: Module, report: Callable[[str], None] = lambda _line: None) -> dict[str, Path]:
    found: object = toolchain.ensure(report, (module,))
    assert isinstance(found, dict)
    return found


def _builds(home: Path) -> int:
    path = home / "bin" / "builds"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_missing_program_is_built_once_with_every_name(home: Path, module: Module) -> None:
    said: list[str] = []
    assert toolchain.missing((module,)) == ["thing 1.2.3"]
    programs = _ensure(module, said.append)
    assert programs["thing"].parent.parent == home / "cache" / "toolchain"
    assert programs["thingctl"].resolve() == programs["thing"].resolve()
    assert said[0] == "building thing 1.2.3: usually 1 minutes on 2 cores, once"
    assert said[-1].startswith("thing 1.2.3: built in")
    assert toolchain.missing((module,)) == []
    assert _ensure(module) == programs
    assert _builds(home) == 1


def test_failing_build_says_what_the_compiler_said_and_publishes_nothing(home: Path, module: Module) -> None:
    (home / "bin" / "broken").touch()
    with pytest.raises(DevClusterError, match="expected package"):
        _ensure(module)
    assert toolchain.missing((module,)) == ["thing 1.2.3"]
    (home / "bin" / "broken").unlink()
    assert _ensure(module)["thing"].exists()


def test_a_program_that_no_cluster_needs_stands_in_nobodys_way(home: Path, module: Module) -> None:
    module = dataclasses.replace(module, programs={"thing": ("--version",)})
    said: list[str] = []
    (home / "bin" / "broken").touch()
    assert toolchain.ensure_extras(said.append, (module,)) == {}
    assert "expected package" in said[-1]
    (home / "bin" / "broken").unlink()
    assert toolchain.ensure_extras(said.append, (module,))["thing"].exists()
    assert toolchain.missing((module,)) == []


def test_program_of_another_version_is_not_published(home: Path, module: Module) -> None:
    other = dataclasses.replace(module, version="1.2.4")
    with pytest.raises(DevClusterError, match=r"thing was built but does not report version 1\.2\.4"):
        _ensure(other)
    assert toolchain.missing((other,)) == ["thing 1.2.4"]


def test_two_at_once_build_once(home: Path, module: Module) -> None:
    results: list[dict[str, Path]] = []
    builders = [threading.Thread(target=lambda: results.append(_ensure(module))) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert results[0] == results[1] == results[2]
    assert _builds(home) == 1


def test_programs_on_path_serve_only_if_all_are_of_the_version(home: Path, module: Module) -> None:
    _write_program(home / "bin" / "thing", _PROGRAM)
    assert toolchain.missing((module,)) == ["thing 1.2.3"]
    _write_program(home / "bin" / "thingctl", _PROGRAM.replace("1.2.3", "1.2.30"))
    assert toolchain.missing((module,)) == ["thing 1.2.3"]
    _write_program(home / "bin" / "thingctl", _PROGRAM)
    assert _ensure(module) == {"thing": home / "bin" / "thing", "thingctl": home / "bin" / "thingctl"}
    assert _builds(home) == 0


@pytest.mark.parametrize(
    ("told", "same"),
    [
        ("Kubernetes v1.36.3", True),
        ("etcd Version: 1.36.3\nGit SHA: none", True),
        ("v1.36.3+g12ab", True),
        ("v1.36.30", False),
        ("v11.36.3", False),
        ("v1.36.3-rc.1", False),
        ("v1.36.2", False),
        ("", False),
    ],
)
def test_only_exactly_the_version_counts(tmp_path: Path, told: str, same: bool) -> None:
    program = _write_program(tmp_path / "program", f"#!/bin/sh\nprintf '{told}'\n")
    assert toolchain.reports_version(program, (), "1.36.3") is same


def test_program_that_cannot_run_reports_no_version(tmp_path: Path) -> None:
    assert not toolchain.reports_version(tmp_path / "absent", (), "1.36.3")


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go"])
def test_key_depends_on_every_source(home: Path, module: Module, changed: str) -> None:
    before = content_key(module, home / "sources", "go1.26.9")
    assert content_key(module, home / "sources", "go1.26.9") == before
    (home / "sources" / "thing" / changed).write_text("other")
    assert content_key(module, home / "sources", "go1.26.9") != before


def test_key_depends_on_flags_and_compiler_but_not_on_where_the_sources_lie(home: Path, module: Module) -> None:
    sources = home / "sources"
    variants = [
        (module, "go1.26.9"),
        (module, "go1.26.10"),
        (dataclasses.replace(module, ldflags="-s -w"), "go1.26.9"),
        (dataclasses.replace(module, tags="small"), "go1.26.9"),
        (dataclasses.replace(module, package="./cmd"), "go1.26.9"),
    ]
    keys = [content_key(variant, sources, version) for variant, version in variants]
    assert len(set(keys)) == len(variants)
    moved = home / "elsewhere"
    shutil.copytree(sources, moved)
    assert content_key(module, moved, "go1.26.9") == keys[0]


def test_key_does_not_confuse_contents_of_neighbouring_files(home: Path, module: Module) -> None:
    sources = home / "sources" / "thing"
    (sources / "go.mod").write_text("ab")
    (sources / "go.sum").write_text("c")
    before = content_key(module, home / "sources", "go1.26.9")
    (sources / "go.mod").write_text("a")
    (sources / "go.sum").write_text("bc")
    assert content_key(module, home / "sources", "go1.26.9") != before


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPECULATIVE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert toolchain.cache_root() == tmp_path / ".cache" / "speculative-operator" / "toolchain"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert toolchain.cache_root() == Path("/xdg/speculative-operator/toolchain")
    monkeypatch.setenv("SPECULATIVE_CACHE", "/own")
    assert toolchain.cache_root() == Path("/own/toolchain")


@pytest.mark.parametrize(
    ("told", "used"), [("go1.27.0", "go1.27.0"), ("go1.25.9", "go1.26.6"), ("go1.26rc1", "go1.26rc1")]
)
def test_old_go_is_not_used(home: Path, told: str, used: str) -> None:
    _write_program(home / "bin" / "go", f"#!/bin/sh\necho go version {told} linux/amd64\n")
    gobuild._go_on_path.cache_clear()
    assert gobuild.version_to_be_used() == used


def test_environment_of_the_caller_does_not_change_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-race")
    monkeypatch.setenv("CGO_ENABLED", "1")
    environment = gobuild._environment()
    assert (environment["GOFLAGS"], environment["CGO_ENABLED"], environment["GOTOOLCHAIN"]) == ("", "0", "local")
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("built", "whole", "elapsed", "said"),
    [
        (10, 1000, 5.0, ""),
        (100, 0, 5.0, ""),
        (1000, 1000, 60.0, ""),
        (500, 1000, 240.0, ", about 5 min left"),
        (999, 1000, 300.0, ", about 1 min left"),
    ],
)
def test_what_is_left_of_a_build_is_told_by_its_pace(built: int, whole: int, elapsed: float, said: str) -> None:
    assert gobuild.tell_time_left(built, whole, elapsed) == said


def test_every_module_has_pinned_sources_of_its_version() -> None:
    versions = {module.name: module.version for module in (*MODULES, *EXTRAS)}
    major, minor, patch = versions["prometheus"].split(".")
    pins = {
        "kubernetes": f"k8s.io/kubernetes v{versions['kubernetes']}",
        "etcd": f"go.etcd.io/etcd/server/v3 v{versions['etcd']}",
        "helm": f"helm.sh/helm/v4 v{versions['helm']}",
        "versitygw": f"github.com/versity/versitygw v{versions['versitygw']}",
        # Prometheus 3.15.0 is the Go module's v0.315.0.
        "prometheus": f"github.com/prometheus/prometheus v0.{major}{int(minor):02}.{patch}",
    }
    for name, pin in pins.items():
        assert re.search(rf"{re.escape(pin)}\s", (toolchain.SOURCES / name / "go.mod").read_text()), name
        assert (toolchain.SOURCES / name / "go.sum").stat().st_size > 0


def test_staging_modules_are_all_pinned_to_one_version() -> None:
    text = (toolchain.SOURCES / "kubernetes" / "go.mod").read_text()
    replaced = [line.split() for line in text.splitlines() if "=>" in line]
    assert len(replaced) == 33
    assert {words[-1] for words in replaced} == {"v0.36.3"}
    assert all(words[0] == words[-2] for words in replaced)
