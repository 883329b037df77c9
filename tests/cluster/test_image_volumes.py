"""Models of oci:// on API servers that keep image volumes, and on one of an earlier release that drops them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.hublab import (
    DRAFT,
    MODELS,
    OPERATOR_IMAGE,
    PYTHON,
    TARGET,
    HubLab,
    folder_of_models,
)  # fmt: skip
from tests.cluster.operatorlab import OperatorLab

from demo.scene import images
from devcluster import Cluster, ClusterOptions
from modelservers.oci import pack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Json = dict[str, Any]
DROPS = {"emulated-version": "1.34"}
"""The last release whose API server drops image volumes unless it is told otherwise."""


@pytest.fixture(scope="module")
def older_cluster(enclosures: None) -> Iterator[Cluster]:
    options = ClusterOptions(
        name=f"older-{os.getpid()}", images={**images(), **PYTHON}, prometheus=False, api_server_flags=DROPS
    )
    with Cluster.start(options) as started:
        yield started


@pytest.fixture(params=["node_cluster", "older_cluster"])
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubLab]:
    """A namespace with a registry that holds team/target and team/draft."""
    lab = OperatorLab(request.getfixturevalue(request.param), tmp_path_factory.mktemp("operator"))
    with folder_of_models(f"registry-{os.getpid()}") as folder:
        for name in (TARGET, DRAFT):
            pack(MODELS / name, folder / "team" / name, "v1")
        lab.install()
        lab.enter()
        yield HubLab(lab, "oci", folder)
        lab.cluster.kubectl("delete", "namespace", lab.namespace, "--wait=false")


def pair(registry: HubLab) -> Json:
    uris = (f"oci://{registry.host}/team/{name}:v1" for name in (TARGET, DRAFT))
    return registry.body("packed", *uris)


def volumes(deployment: Json) -> list[str]:
    """Images that pods of it are to mount."""
    found = deployment["spec"]["template"]["spec"]["volumes"]
    return [volume["image"]["reference"] for volume in found if "image" in volume]


@pytest.mark.parametrize("registry", ["node_cluster"], indirect=True)
def test_image_volumes_that_are_kept_carry_the_models(registry: HubLab) -> None:
    lab = registry.lab
    with lab.operator(job_image=OPERATOR_IMAGE, check_pairs="true", plain_http_registries=registry.host):
        lab.apply(pair(registry))
        deployment = registry.wait("a Deployment", lambda: lab.get("deployment", "packed"))
        (pod,) = lab.pods(1, "packed")
        ready = registry.wait("a status", lambda: lab.condition("Ready", "packed").get("reason") == "PodsNotReady")
    pins = [registry.status("packed")["pair"][f"{side}Pin"]["resolved"] for side in ("verifier", "speculator")]
    assert volumes(deployment) == [
        f"{registry.host}/team/{name}@{pin}" for name, pin in zip((TARGET, DRAFT), pins, strict=True)
    ]
    assert len(volumes({"spec": {"template": pod}})) == 2
    assert ready


@pytest.mark.parametrize("registry", ["older_cluster"], indirect=True)
def test_where_they_are_dropped_no_pod_is_made_and_the_remedy_is_told(registry: HubLab) -> None:
    lab = registry.lab
    with lab.operator(job_image=OPERATOR_IMAGE, check_pairs="true", plain_http_registries=registry.host):
        lab.apply(pair(registry))
        registry.wait("it is said", lambda: lab.condition("Ready", "packed").get("reason") == "UnsupportedSource")
        told = lab.condition("Ready", "packed")
        assert told["status"] == "False"
        assert "enable the feature gate" in told["message"]
        assert lab.condition("PairCompatible", "packed")["status"] == "True", "the registry was read all the same"
        assert lab.get("service", "packed"), "what needs no image volume is made"
        time.sleep(3.0)
        assert lab.get("deployment", "packed") is None
        assert not lab.listed("pods", "serving.speculative.dev/deployment=packed")
