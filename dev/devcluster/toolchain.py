"""The programs of a cluster, of exactly the pinned versions: found in the cache, found on PATH, or built.

`ensure` is what a cluster's start calls; when everything is cached it takes milliseconds. What is pinned where:
`dev/toolchain/<module>/go.mod` pins sources, this file the versions that the programs must report.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster import gobuild
from devcluster.errors import DevClusterError
from devcluster.progress import Report, alone, announce

SOURCES = Path(__file__).resolve().parent.parent / "toolchain"
_KUBERNETES = "1.36.3"
_ETCD = "3.6.16"
_PROMETHEUS = "3.15.0"  # the module's v0.315.0
_HELM = "4.3.1"
_VERSITYGW = "1.8.0"


@dataclass(frozen=True)
class Module:
    """One Go module of the toolchain and the programs that come out of it.

    `programs` maps each name to the arguments that make it tell its version. More than one means one file that acts by
    the name it is called under. `usual_minutes` is what a build from nothing takes on two cores.
    """

    name: str
    version: str
    package: str
    programs: Mapping[str, tuple[str, ...]]
    ldflags: str
    usual_minutes: float
    tags: str = ""


_COMPONENT_BASE = "k8s.io/component-base/version"
_HELM_VERSION = "helm.sh/helm/v4/internal/version"
MODULES = (
    Module(
        name="etcd",
        version=_ETCD,
        package="go.etcd.io/etcd/server/v3",
        programs={"etcd": ("--version",)},
        ldflags="-s -w",
        usual_minutes=1,
    ),
    Module(
        name="kubernetes",
        version=_KUBERNETES,
        package=".",
        programs={
            "kube-apiserver": ("--version",),
            "kube-controller-manager": ("--version",),
            "kube-scheduler": ("--version",),
            "kubectl": ("version", "--client"),
        },
        # Without these the server reports v0.0.0 and clients refuse its version skew.
        ldflags=" ".join(
            (
                "-s -w",
                f"-X {_COMPONENT_BASE}.gitVersion=v{_KUBERNETES}",
                f"-X {_COMPONENT_BASE}.gitMajor=1",
                f"-X {_COMPONENT_BASE}.gitMinor=36",
                f"-X {_COMPONENT_BASE}.gitTreeState=clean",
            )
        ),
        usual_minutes=8,
    ),
    Module(
        name="prometheus",
        version=_PROMETHEUS,
        package="github.com/prometheus/prometheus/cmd/prometheus",
        programs={"prometheus": ("--version",)},
        ldflags=f"-s -w -X github.com/prometheus/common/version.Version={_PROMETHEUS}",
        usual_minutes=3,
        tags="remove_all_sd,enable_kubernetes_sd",
    ),
    Module(
        name="helm",
        version=_HELM,
        package="helm.sh/helm/v4/cmd/helm",
        programs={"helm": ("version", "--template", "{{.Version}}")},
        ldflags=f"-s -w -X {_HELM_VERSION}.version=v{_HELM} -X {_HELM_VERSION}.metadata=",
        usual_minutes=2,
    ),
)
VERSITYGW = Module(
    name="versitygw",
    version=_VERSITYGW,
    package="github.com/versity/versitygw/cmd/versitygw",
    programs={"versitygw": ("--version",)},
    ldflags=f"-s -w -X main.Version={_VERSITYGW}",
    usual_minutes=4,
)
PROMTOOL = Module(
    name="promtool",
    version=_PROMETHEUS,
    package="github.com/prometheus/prometheus/cmd/promtool",
    programs={"promtool": ("--version",)},
    ldflags=f"-s -w -X github.com/prometheus/common/version.Version={_PROMETHEUS}",
    usual_minutes=2,
    tags="remove_all_sd,enable_kubernetes_sd",
)
EXTRAS = (VERSITYGW, PROMTOOL)
"""What no cluster needs and some tests want: they are skipped where it cannot be built."""


@dataclass(frozen=True)
class Toolchain:
    """Paths of every program a cluster needs."""

    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    etcd: Path
    prometheus: Path
    helm: Path

    @classmethod
    def of(cls, programs: Mapping[str, Path]) -> "Toolchain":
        """From paths by program name."""
        return cls(**{name.replace("-", "_"): path for name, path in programs.items()})


def cache_root() -> Path:
    """Where built programs are kept: SPECULATIVE_CACHE, else below XDG_CACHE_HOME, else below ~/.cache."""
    own = os.environ.get("SPECULATIVE_CACHE")
    if own:
        return Path(own).expanduser() / "toolchain"
    shared = os.environ.get("XDG_CACHE_HOME")
    base = Path(shared) if shared else Path.home() / ".cache"
    return base / "speculative-operator" / "toolchain"


def content_key(module: Module, sources: Path, go_version: str) -> str:
    """Hash of everything a build depends on: sources, pins, flags, compiler and machine."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        path = sources / module.name / name
        content = path.read_bytes() if path.exists() else b""
        digest.update(f"{name} {len(content)}\n".encode() + content)
    flags = gobuild.arguments(module.package, module.ldflags, module.tags, Path("program"))
    digest.update(json.dumps([flags, gobuild.ENVIRONMENT, go_version, platform.machine()], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def ensure(report: Report = announce, modules: tuple[Module, ...] = MODULES) -> Toolchain:
    """Every program, built where it must be; `report` is told what is built and how long it usually takes."""
    programs: dict[str, Path] = {}
    unbuilt: list[tuple[Module, Path]] = []
    for module, directory, found in _look(modules):
        programs.update(found)
        if not found:
            unbuilt.append((module, directory))
    if unbuilt:
        minutes = sum(module.usual_minutes for module, _ in unbuilt)
        names = ", ".join(f"{module.name} {module.version}" for module, _ in unbuilt)
        report(f"building {names}: usually {minutes:.0f} minutes on 2 cores, once")
    for module, directory in unbuilt:
        programs.update(_build(module, directory, report))
    return Toolchain.of(programs)


def program(module: Module, report: Report = announce) -> Path:
    """The one program of a module that no cluster needs, built where it must be."""
    ((_, directory, found),) = _look((module,))
    (path,) = (found or _build(module, directory, report)).values()
    return path


def ensure_extras(report: Report = announce, modules: tuple[Module, ...] = EXTRAS) -> dict[str, Path]:
    """What can be had of the programs that no cluster needs. A failure is told, and stands in nobody's way."""
    programs: dict[str, Path] = {}
    for module in modules:
        try:
            programs[module.name] = program(module, report)
        except (DevClusterError, OSError) as error:
            report(f"{module.name} {module.version} was not built, tests that want it are skipped: {error}")
    return programs


def missing(modules: tuple[Module, ...] = MODULES) -> list[str]:
    """Names and versions of what `ensure` would have to build."""
    return [f"{module.name} {module.version}" for module, _, found in _look(modules) if not found]


def _look(modules: tuple[Module, ...]) -> Iterator[tuple[Module, Path, dict[str, Path]]]:
    """Each module with the directory a build of it is published in, and its programs where they exist already."""
    go_version = gobuild.version_to_be_used()
    for module in modules:
        directory = cache_root() / f"{module.name}-{content_key(module, SOURCES, go_version)}"
        yield module, directory, _in_cache(module, directory) or _on_path(module)


def _in_cache(module: Module, directory: Path) -> dict[str, Path]:
    """The module's programs in a published directory; empty where there is none."""
    return {name: directory / name for name in module.programs} if directory.is_dir() else {}


def _on_path(module: Module) -> dict[str, Path]:
    """The module's programs where PATH holds all of them in exactly the pinned version; else empty."""
    found = {}
    for name, arguments in module.programs.items():
        path = shutil.which(name)
        if path is None or not reports_version(Path(path), arguments, module.version):
            return {}
        found[name] = Path(path)
    return found


def reports_version(program: Path, arguments: tuple[str, ...], version: str) -> bool:
    """Whether a program tells exactly this version; build metadata behind a plus sign does not count."""
    try:
        answer = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    exact = rf"(?<![\w.]){re.escape(version)}(?![\w.-])"
    return re.search(exact, answer.stdout.replace(f"v{version}", version)) is not None


def _build(module: Module, directory: Path, report: Report) -> dict[str, Path]:
    """Build and publish: under another name until the programs have told the right version, then renamed."""
    with alone(directory, f"is building {module.name}", report):
        if found := _in_cache(module, directory):
            return found
        partial = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        first, *others = module.programs
        gobuild.build(
            SOURCES / module.name,
            gobuild.arguments(module.package, module.ldflags, module.tags, partial / first),
            title=f"{module.name} {module.version}",
            usual_minutes=module.usual_minutes,
            go=gobuild.ensure_go(cache_root(), report),
            report=report,
        )
        for name in others:
            (partial / name).symlink_to(first)
        for name, arguments in module.programs.items():
            if not reports_version(partial / name, arguments, module.version):
                raise DevClusterError(
                    f"{name} was built but does not report version {module.version}",
                    f"dev/toolchain/{module.name}/go.mod and devcluster/toolchain.py pin different versions",
                )
        partial.rename(directory)
        return _in_cache(module, directory)
