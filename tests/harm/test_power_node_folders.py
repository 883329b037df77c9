"""The harm: whoever may create a SpeculativeDeployment, and nothing else, wrote as root to a folder of every node: by a
container of the template that mounted the cache, in a folder of which nobody had thought that it is the system's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, advance

from speculative_operator.domain.spec import Cache, Weights
from speculative_operator.settings import Settings

ROOT: dict[str, Any] = {
    "name": "pwn",
    "image": "busybox",
    "command": ["sh", "-c", "cp /payload /w/loopback"],
    "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
    "volumeMounts": [{"name": "weights", "mountPath": "/w"}],
}
DEFAULT = Settings().node_folder_list


def deployed(folder: str, template: dict[str, Any]) -> tuple[bool, str]:
    """Whether pods were made by the operator's default settings, and what is said of Ready."""
    spec = replace(PAIRED, weights=Weights(cache=Cache(node_path=folder)), template={"spec": template})
    cluster = Paired(spec=spec, capabilities=replace(LOOKING, node_folders=DEFAULT))
    cluster.tick()
    if cluster.condition("Ready")["reason"] != "SpecInvalid":
        advance(cluster)
    return ("Deployment", "demo") in cluster.children, cluster.condition("Ready")["message"]


@pytest.mark.parametrize(
    "folder",
    ["/opt/cni/bin", "/var/spool/cron", "/home/core", "/var/lib/minikube", "/host", "/etc", f"{DEFAULT[0]}-2"],
)
def test_no_folder_is_anybodys_but_those_allowed(folder: str) -> None:
    made, said = deployed(folder, {})
    assert not made
    assert f"nodePath is {folder}, which is in none of the folders allowed ({DEFAULT[0]})" in said


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_no_container_of_the_template_writes_there(kind: str) -> None:
    made, said = deployed(DEFAULT[0], {kind: [ROOT]})
    assert not made
    assert f"spec.template.spec.{kind}[pwn].volumeMounts[/w].name is weights" in said


def test_what_the_operator_needs_is_still_made() -> None:
    assert deployed(f"{DEFAULT[0]}/team-a", {})[0]
