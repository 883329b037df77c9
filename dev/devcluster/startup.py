"""How a cluster comes up: files, enclosure, first objects, and waiting until everything asked for is ready.

Called by `cluster.py` only. Whatever fails on the way, nothing stays behind.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from devcluster import addresses, controlplane, enclosure, prometheus, state
from devcluster.apiclient import ApiClient, wait_until
from devcluster.component import Component, Forward, Plan, log_path, ready_path, status_path
from devcluster.controlplane import Files
from devcluster.enclosure import Enclosure
from devcluster.errors import DevClusterError
from devcluster.options import ClusterOptions
from devcluster.progress import Report
from devcluster.toolchain import Toolchain

NODE_NAME = "node-1"
_FACTS = "cluster.json"
_LOCK_PATIENCE_SECONDS = 1.0
# Slow machines under load start slowly; a program that fails is noticed by its restarts, long before.
_READY_SECONDS = 120.0
_TOO_MANY_RESTARTS = 3


def facts(directory: Path) -> dict[str, Any]:
    """What is known of a cluster from the moment it exists: process ids, addresses, programs."""
    try:
        known: dict[str, Any] = json.loads((directory / _FACTS).read_text())
    except FileNotFoundError:
        raise DevClusterError(f"{directory.name}: the cluster is just being made", "try again in a second") from None
    return known


def launch(options: ClusterOptions, place: state.Place, tools: Toolchain, report: Report, *, stays: bool) -> Enclosure:
    """Bring the cluster up; returns when it is ready, raises DevClusterError and leaves nothing where it is not."""
    state.sweep()
    lock = place.acquire(_LOCK_PATIENCE_SECONDS)
    if lock is None:
        raise DevClusterError(
            f"cluster {options.name!r} is running already",
            f"end it (python -m devcluster down --name {options.name}; for the demo's also: make down), or choose "
            'another name (make demo ARGS="--name other")',
        )
    try:
        living = _enclose(options, tools, place, lock, stays=stays)
    except BaseException:
        place.discard()
        raise
    finally:
        os.close(lock)
    try:
        _complete(options, Files(place.directory), living, report)
        ready_path(place.directory).touch()
    except BaseException as error:
        said = _last_words(place.directory) if isinstance(error, DevClusterError) else ""
        living.stop()
        if said:
            raise DevClusterError(str(error), said) from error
        raise
    return living


def _enclose(options: ClusterOptions, tools: Toolchain, place: state.Place, lock: int, *, stays: bool) -> Enclosure:
    """Write all files and start the enclosure with everything in it."""
    files = Files(place.directory)
    (files.directory / "logs").mkdir(mode=0o700, parents=True)
    with contextlib.ExitStack() as opened:
        parent = os.pidfd_open(os.getpid())
        opened.callback(os.close, parent)
        targets = [(addresses.API_SERVER, addresses.API_SERVER_PORT)]
        if options.prometheus:
            targets.append((addresses.PROMETHEUS, addresses.PROMETHEUS_PORT))
        listeners = [opened.enter_context(enclosure.listen()) for _ in targets]
        urls = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
        controlplane.prepare(files, options.name, f"https://{urls[0]}", NODE_NAME)
        if options.prometheus:
            prometheus.write_config(files, options.scrape_interval_seconds)
        plan = Plan(
            directory=str(place.directory),
            lock=str(place.lock),
            lock_fd=lock,
            parent_fd=parent,
            stays=stays,
            ranges=(addresses.POD_RANGE, addresses.SERVICE_RANGE),
            certificate_authority=str(files.authority),
            forwards=tuple(
                Forward(listener.fileno(), host, port)
                for listener, (host, port) in zip(listeners, targets, strict=True)
            ),
            components=components(options, tools, files),
            keep_logs=os.environ.get("DEVCLUSTER_KEEP_LOGS", ""),
        )
        living = Enclosure.start(plan)
    _write_facts(files.directory, tools, living, urls)
    return living


def _write_facts(directory: Path, tools: Toolchain, living: Enclosure, urls: list[str]) -> None:
    known = {
        "outer": living.outer,
        "first": living.first,
        "server": f"https://{urls[0]}",
        "prometheusUrl": f"http://{urls[1]}" if len(urls) > 1 else "",
        "binaries": {name: str(tool) for name, tool in asdict(tools).items()},
    }
    partial = directory / f"{_FACTS}.partial"
    partial.write_text(json.dumps(known))
    partial.rename(directory / _FACTS)


def components(options: ClusterOptions, tools: Toolchain, files: Files) -> tuple[Component, ...]:
    """Everything that the supervisor runs for these options."""
    chosen = [controlplane.etcd(files, tools), controlplane.api_server(files, tools, options.api_server_flags)]
    if options.controllers:
        chosen.extend(controlplane.controllers(files, tools))
    if options.prometheus:
        chosen.append(prometheus.component(files, tools))
    if options.node:
        chosen.append(node(options, files))
    return tuple(chosen)


def node_config(options: ClusterOptions, files: Files) -> dict[str, Any]:
    """What the process node reads."""
    return {
        "name": NODE_NAME,
        "server": controlplane.INSIDE_SERVER,
        "kubeconfig": str(files.inside("node")),
        "address": addresses.NODE,
        "podCIDR": addresses.NODE_POD_RANGE,
        "serviceCIDR": addresses.SERVICE_RANGE,
        "accelerators": dict(options.accelerators),
        "labels": dict(options.node_labels),
        "images": {
            name: {"entrypoint": list(image.entrypoint), "env": dict(image.env)}
            for name, image in options.images.items()
        },
        "stateDir": str(files.directory / "node"),
        "kubeletPort": addresses.KUBELET_PORT,
        "certificate": str(files.keys / "kubelet.crt"),
        "key": str(files.keys / "kubelet.key"),
        **options.node_settings,
    }


def node(options: ClusterOptions, files: Files) -> Component:
    """The process node, with its configuration written."""
    path = files.directory / "node.json"
    (files.directory / "node").mkdir(exist_ok=True)
    path.write_text(json.dumps(node_config(options, files), indent=2))
    return Component(
        name="node",
        argv=(sys.executable, "-m", "devcluster.node", "--config", str(path)),
        ready=f"tcp://{addresses.NODE}:{addresses.KUBELET_PORT}",
        after=("kube-apiserver",),
    )


def _complete(options: ClusterOptions, files: Files, living: Enclosure, report: Report) -> None:
    """Create the first objects and wait for every part."""
    client = ApiClient.administrator(facts(files.directory)["server"], files, retries=False)

    def await_part(what: str, attempt: Callable[[], bool]) -> None:
        def checked() -> bool:
            _check_health(files.directory, living)
            return attempt()

        wait_until(what, _READY_SECONDS, checked, lambda: "")
        report(f"{what}: ready")

    try:
        await_part("API server", lambda: client.request("GET", "/readyz") == "ok")
        if options.prometheus:
            prometheus.bootstrap(client, files)
        if options.controllers:
            default = "/api/v1/namespaces/default/serviceaccounts/default"
            await_part("controllers", lambda: bool(client.request("GET", default)))
        if options.node:
            await_part("node", lambda: _is_ready(client.request("GET", f"/api/v1/nodes/{NODE_NAME}")))
        if options.prometheus:
            await_part("Prometheus", lambda: _state_of(files.directory, "prometheus") == "ready")
    finally:
        client.close()


def _is_ready(node_object: dict[str, Any]) -> bool:
    conditions = node_object.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _states(directory: Path) -> dict[str, dict[str, Any]]:
    path = status_path(directory)
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _state_of(directory: Path, component: str) -> str:
    return str(_states(directory).get(component, {}).get("state", ""))


def _check_health(directory: Path, living: Enclosure) -> None:
    """Fail at once, not after the patience, where a part cannot come up."""
    if living.process is not None and living.process.poll() is not None:
        raise DevClusterError(f"the enclosure ended with {living.process.returncode} during the start")
    for name, item in _states(directory).items():
        if item["restarts"] >= _TOO_MANY_RESTARTS:
            raise DevClusterError(f"{name} ended {item['restarts']} times, the last time with {item['exitCode']}")


def _last_words(directory: Path) -> str:
    """The ends of the logs of what is not well."""
    suspects = [name for name, item in _states(directory).items() if item["restarts"] or item["state"] == "ended"]
    found = []
    for name in [*suspects, "supervisor"]:
        path = log_path(directory, name)
        if path.exists():
            lines = path.read_text(errors="replace").splitlines()[-12:]
            found.append("\n".join([f"--- {name} log ends:", *lines]))
    return "\n".join(found)
