"""The public face: start a cluster, use it, end it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from devcluster import startup, toolchain
from devcluster.apiclient import ApiClient, wait_until
from devcluster.component import held_path, log_path, ready_path, status_path
from devcluster.controlplane import Files
from devcluster.enclosure import Enclosure, environment
from devcluster.errors import DevClusterError
from devcluster.objects import Objects
from devcluster.options import ClusterOptions
from devcluster.progress import Report, announce
from devcluster.prometheus import INSIDE_URL
from devcluster.state import Place
from devcluster.toolchain import Toolchain

_ENTER = Path(__file__).with_name("enter.py")
_Stream = int | IO[Any] | None


def _silent(_line: str) -> None:
    """A start takes seconds: nobody need be told about its parts."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster; as a context manager it ends everything when left.

    `server` and `prometheus_url` are addresses for the host. `binaries` are the pinned programs. `enclosure` is None
    for an existing cluster given by a kubeconfig, which is never ended and has no inside.
    """

    name: str
    state_dir: Path
    kubeconfig: Path
    server: str
    prometheus_url: str
    audit_log: Path
    binaries: Toolchain
    enclosure: Enclosure | None

    @classmethod
    def start(cls, options: ClusterOptions, report: Report | None = None) -> Self:
        """Start a cluster that lives no longer than this process; returns when everything asked for is ready.

        `report` is told each part as it becomes ready; builds of missing programs are told in any case.
        """
        return cls._started(options, report, stays=False)

    @classmethod
    def start_detached(cls, options: ClusterOptions, report: Report | None = None) -> Self:
        """Start a cluster that stays until somebody stops it."""
        return cls._started(options, report, stays=True)

    @classmethod
    def _started(cls, options: ClusterOptions, report: Report | None, *, stays: bool) -> Self:
        place = Place.named(options.name)
        tools = toolchain.ensure(report or announce)
        enclosure = startup.launch(options, place, tools, report or _silent, stays=stays)
        try:
            return cls._of(options.name, place, enclosure)
        except BaseException:
            enclosure.stop()
            raise

    @classmethod
    def attach(cls, name: str) -> Self:
        """The running cluster of that name."""
        place = Place.named(name)
        if not place.alive():
            raise DevClusterError(f"no cluster {name!r} is running", f"start it: python -m devcluster up --name {name}")
        if not ready_path(place.directory).exists():
            raise DevClusterError(f"cluster {name!r} is still starting", "try again in some seconds")
        facts = startup.facts(place.directory)
        return cls._of(name, place, Enclosure(facts["outer"], facts["first"]))

    @classmethod
    def _of(cls, name: str, place: Place, enclosure: Enclosure) -> Self:
        facts = startup.facts(place.directory)
        files = Files(place.directory)
        return cls(
            name=name,
            state_dir=place.directory,
            kubeconfig=files.kubeconfig,
            server=facts["server"],
            prometheus_url=facts["prometheusUrl"],
            audit_log=files.audit_log,
            binaries=Toolchain.of({key: Path(path) for key, path in facts["binaries"].items()}),
            enclosure=enclosure,
        )

    @classmethod
    def existing(cls, config: Path, state_dir: Path) -> Self:
        """A cluster that somebody else runs and that may be changed freely; PROMETHEUS_URL names its Prometheus."""
        return cls(
            name="existing",
            state_dir=state_dir,
            kubeconfig=config,
            server=ApiClient.from_kubeconfig(config).server,
            prometheus_url=os.environ.get("PROMETHEUS_URL", ""),
            audit_log=state_dir / "audit.log",
            binaries=toolchain.ensure(),
            enclosure=None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @cached_property
    def client(self) -> ApiClient:
        """The administrator's connections."""
        if self.enclosure is None:
            return ApiClient.from_kubeconfig(self.kubeconfig)
        return ApiClient.administrator(self.server, Files(self.state_dir))

    @cached_property
    def objects(self) -> Objects:
        """What is in it, for those who look often."""
        return Objects(self.client)

    def wait_for_kinds(self, *definitions: str) -> None:
        """Wait until the kinds of these definitions are served; those of all definitions where none is named.

        `kubectl wait` fails at a definition that was made so recently that it has no condition yet. An established
        kind answers watches with 429 until the API server has filled its cache, so this lists each from there; the
        client asks again after a 429.
        """

        def read_definitions() -> dict[str, Any]:
            return {one["metadata"]["name"]: one for one in self.objects.list("customresourcedefinitions", "")}

        def missing() -> list[str]:
            known = read_definitions()
            return [name for name in definitions or known if not _is_established(known.get(name, {}))]

        wait_until("kinds are served", 120.0, lambda: not missing(), lambda: ", ".join(missing()))
        known = read_definitions()
        for name in definitions or known:
            self.client.request("GET", _served_at(known[name]["spec"]) + "?limit=1&resourceVersion=0")

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; DevClusterError with what it said where it fails and `check` is set."""
        return self._tool(self.binaries.kubectl, args, given=input, check=check)

    def helm(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm as administrator; its caches lie in the cluster's state directory."""
        return self._tool(self.binaries.helm, args, given=None, check=check)

    def _tool(
        self, program: Path, args: Sequence[str], *, given: str | None, check: bool
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [program, *args],
            env={**os.environ, **self.environment()},
            input=given,
            # An open terminal would be read by `apply -f -` and the like where nothing was given.
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and result.returncode != 0:
            raise DevClusterError(
                f"{program.name} {' '.join(args)} ended with {result.returncode}", result.stderr or result.stdout
            )
        return result

    def environment(self) -> dict[str, str]:
        """Variables with which any program of the host uses this cluster."""
        helm = self.state_dir / "helm"
        return {
            "KUBECONFIG": str(self.kubeconfig),
            # By default kubectl keeps what it learnt of an address, which the next cluster may have.
            "KUBECACHEDIR": str(self.state_dir / "kubectl"),
            "HELM_CACHE_HOME": str(helm / "cache"),
            "HELM_CONFIG_HOME": str(helm / "config"),
            "HELM_DATA_HOME": str(helm / "data"),
            # Set even where there is none: the caller's own may be another cluster's.
            "PROMETHEUS_URL": self.prometheus_url,
        }

    def inside(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: _Stream = None,
        stderr: _Stream = None,
    ) -> subprocess.Popen[Any]:
        """Start a program in the enclosure's network; it sees the host's files and ends with the cluster.

        `env` is added to this process's environment. KUBECONFIG and PROMETHEUS_URL name the servers as they are reached
        from inside, unless `env` says otherwise. Signals and exit codes pass through.
        """
        if self.enclosure is None:
            raise DevClusterError(
                f"cluster {self.name!r} is not an enclosure of this machine", "run the program in a pod"
            )
        variables = {
            **environment(),
            "KUBECONFIG": str(Files(self.state_dir).inside("admin")),
            "PROMETHEUS_URL": INSIDE_URL if self.prometheus_url else "",
            **(env or {}),
        }
        shim = [sys.executable, "-I", "-S", str(_ENTER), str(self.enclosure.outer), str(Path.cwd())]
        return subprocess.Popen([*shim, *argv], env=variables, stdout=stdout, stderr=stderr)

    def log(self, component: str) -> Path:
        """Log file of a supervised component: kube-apiserver, etcd, node, prometheus, supervisor, ..."""
        return log_path(self.state_dir, component)

    def components(self) -> dict[str, dict[str, Any]]:
        """State, restarts and last exit code of every supervised component."""
        if self.enclosure is None:
            return {}
        states: dict[str, dict[str, Any]] = json.loads(status_path(self.state_dir).read_text())
        return states

    @contextmanager
    def without(self, *components: str) -> Iterator[None]:
        """Kill supervised components and keep them down meanwhile; afterwards they are ready again."""

        def all_are(state: str) -> bool:
            known = self.components()
            return all(known[name]["state"] == state for name in components)

        held = [held_path(self.state_dir, name) for name in components]
        try:
            for path in held:
                path.touch()
            known = self.components()
            self.inside(["kill", "-KILL", *(str(known[name]["pid"]) for name in components)]).wait(30)
            wait_until("components ended", 30.0, lambda: all_are("ended"), lambda: ", ".join(components))
            yield
        finally:
            for path in held:
                path.unlink(missing_ok=True)
            wait_until("components are ready again", 120.0, lambda: all_are("ready"), lambda: ", ".join(components))

    def stop(self) -> None:
        """End every process of the cluster and delete its files; a cluster of somebody else is left alone."""
        if self.enclosure is not None:
            self.enclosure.stop()


def _served_at(spec: Mapping[str, Any]) -> str:
    """The path of a kind's objects in all namespaces, of the first version that is served."""
    version = next(one["name"] for one in spec["versions"] if one["served"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _is_established(definition: Mapping[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)
