"""`python -m devcluster`: build, up, down, status, run, kubectl."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from devcluster import startup, state, toolchain
from devcluster.cluster import Cluster
from devcluster.enclosure import Enclosure
from devcluster.errors import DevClusterError
from devcluster.options import ClusterOptions
from devcluster.progress import Reporter


def build(_arguments: argparse.Namespace) -> int:
    """Build what is missing and print where every program lies."""
    report = Reporter()
    tools = toolchain.ensure(report)
    for name, path in {**vars(tools), **toolchain.ensure_extras(report)}.items():
        print(f"{name.replace('_', '-'):24} {path}")
    return 0


def up(arguments: argparse.Namespace) -> int:
    """Start a cluster that stays."""
    cluster = Cluster.start_detached(_options(arguments), Reporter())
    print(_usage(cluster))
    return 0


def _usage(cluster: Cluster) -> str:
    lines = [
        f"Cluster {cluster.name!r} is up. Use it with",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        f"  export PATH={cluster.binaries.kubectl.parent}:{cluster.binaries.helm.parent}:$PATH",
        "  kubectl get nodes",
    ]
    if cluster.prometheus_url:
        lines.append(f"Prometheus: {cluster.prometheus_url}")
    lines.append(f"Logs: {cluster.state_dir / 'logs'}")
    lines.append(f"End it with: python -m devcluster down --name {cluster.name}")
    return "\n".join(lines)


def down(arguments: argparse.Namespace) -> int:
    """End a cluster; one that does not run is ended already."""
    state.sweep()
    place = state.Place.named(arguments.name)
    if place.alive():
        # Also one whose start is not complete, which `attach` refuses.
        known = startup.facts(place.directory)
        Enclosure(known["outer"], known["first"]).stop()
        print(f"cluster {arguments.name!r} has ended")
    else:
        others = ", ".join(state.living())
        print(f"no cluster {arguments.name!r} is running" + f"; these are: {others}" * bool(others))
    return 0


def status(_arguments: argparse.Namespace) -> int:
    """Running clusters and the state of their parts."""
    names = state.living()
    if not names:
        print("no cluster is running")
    for name in names:
        try:
            cluster = Cluster.attach(name)
        except DevClusterError as error:
            print(f"{name}: {error.problem}")
            continue
        print(f"{name}: {cluster.server}  KUBECONFIG={cluster.kubeconfig}  Prometheus {cluster.prometheus_url or '-'}")
        for component, item in cluster.components().items():
            print(f"  {component:26} {item['state']:8} restarts {item['restarts']}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """A cluster for the life of one command; its exit code is ours."""
    with Cluster.start(_options(arguments), Reporter()) as cluster:
        paths = [str(cluster.binaries.kubectl.parent), str(cluster.binaries.helm.parent), os.environ.get("PATH", "")]
        variables = {**os.environ, **cluster.environment(), "PATH": os.pathsep.join(paths)}
        return _exit_code(_outlast(arguments.command, variables))


def _outlast(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the command to its end, whatever signal comes.

    The terminal's Ctrl-C reaches the command too, so it decides what Ctrl-C means; SIGTERM comes to us alone and is
    handed on. Neither may raise while the exit code is being collected: it would be lost, and read as success.
    """
    ended_early = False

    def terminate(_number: int, _frame: object) -> None:
        nonlocal ended_early
        ended_early = True
        if process is not None:
            process.terminate()

    process: subprocess.Popen[bytes] | None = None
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda _number, _frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    try:
        with subprocess.Popen(command, env=variables) as process:
            if ended_early:
                process.terminate()
            return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(code: int) -> int:
    """As a shell tells it: 128 plus the signal."""
    return code if code >= 0 else 128 - code


def kubectl(arguments: argparse.Namespace) -> int:
    """kubectl as administrator, terminal and all."""
    cluster = Cluster.attach(arguments.name)
    variables = {**os.environ, **cluster.environment()}
    return _exit_code(
        subprocess.run([cluster.binaries.kubectl, *arguments.command], env=variables, check=False).returncode
    )


def _options(arguments: argparse.Namespace) -> ClusterOptions:
    """Options from the file, overridden by what the command line says."""
    values = _from_file(Path(arguments.config)) if arguments.config is not None else {}
    if arguments.name is not None:
        values["name"] = arguments.name
    for off in ("node", "controllers", "prometheus"):
        if getattr(arguments, f"no_{off}"):
            values[off] = False
    if not values.get("controllers", True):
        values.setdefault("node", False)
    return ClusterOptions.from_dict(values)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        raise DevClusterError(f"{path} cannot be read: {error.strerror}", "give a readable YAML file") from error
    except yaml.YAMLError as error:
        raise DevClusterError(f"{path} is not YAML", str(error)) from error
    if not isinstance(values, dict):
        raise DevClusterError(f"{path} is not a mapping of cluster options", "write for example: node: false")
    return values


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="devcluster", description="A private, rootless Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("build", help="build and cache every program").set_defaults(act=build)
    commands.add_parser("status", help="show running clusters").set_defaults(act=status)
    for name, act, text in (("up", up, "start a cluster that stays"), ("run", run, "a cluster for one command")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--name", help="default: default")
        command.add_argument("--config", metavar="FILE", help="YAML file with any cluster options, images among them")
        command.add_argument("--no-node", action="store_true", help="no node: pods stay Pending")
        command.add_argument("--no-controllers", action="store_true", help="API server and etcd only")
        command.add_argument("--no-prometheus", action="store_true", help="no Prometheus")
        command.set_defaults(act=act)
        if act is run:
            command.add_argument("command", nargs="+", metavar="-- CMD")
    for name, act, text in (("down", down, "end a cluster"), ("kubectl", kubectl, "run kubectl")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--name", default="default")
        command.set_defaults(act=act)
        if act is kubectl:
            command.add_argument("command", nargs="*", metavar="-- ARGS")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, act, and tell errors in words."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.act(parsed)
    except DevClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code
