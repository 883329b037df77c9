"""Whatever the API server lets in is served or refused with field, value and remedy; none makes the operator fail.

200 objects by default; SPECULATIVE_FUZZ_OBJECTS says how many, as `make fuzz` does, and SPECULATIVE_FUZZ_SEED which. A
failure prints both.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from kubernetes.client.exceptions import ApiException
from tests.contract.fuzz import fuzzed, tick_twice
from tests.contract.objects import specdep
from tests.contract.server import Server

from devcluster import Cluster
from speculative_operator.settings import Settings
from speculative_operator.shell.errors import InvalidError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CHILD_BY_KIND, OWNER, POD_MONITOR
from speculative_operator.shell.telemetry import Telemetry

pytestmark = pytest.mark.cluster

OBJECTS = int(os.environ.get("SPECULATIVE_FUZZ_OBJECTS") or 200)
SEED = int(os.environ.get("SPECULATIVE_FUZZ_SEED") or 1)
FUZZ = settings(
    max_examples=OBJECTS,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


class Shell:
    """The operator's own client, called without a loop around it."""

    def __init__(self, runner: asyncio.Runner, kube: Kube) -> None:
        self._runner = runner
        self._kube = kube

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """What the API server would make of a manifest. Raises InvalidError where it refuses it."""
        return self._runner.run(self._kube.apply(CHILD_BY_KIND[manifest["kind"]], manifest, dry=True))

    def names(self) -> list[str]:
        """Of all SpeculativeDeployments."""

        async def listed() -> list[str]:
            return [body["metadata"]["name"] async for body in self._kube.list(OWNER, "default")]

        return self._runner.run(listed())

    def get(self, name: str) -> dict[str, Any]:
        return self._runner.run(self._kube.get(OWNER, "default", name))


@pytest.fixture(scope="module")
def shell(bare_cluster: Cluster, installed: dict[str, Any]) -> Iterator[Shell]:
    assert installed
    with pytest.MonkeyPatch.context() as patched, asyncio.Runner() as runner:
        patched.setenv("KUBECONFIG", str(bare_cluster.kubeconfig))
        kube = Kube(Settings(), Telemetry())
        runner.run(kube.start())

        yield Shell(runner, kube)
        runner.run(kube.close())


@pytest.fixture(scope="module")
def kept(server: Server) -> str:
    """Name of an object whose status may be written."""
    server.create(specdep(name="fuzzed"), keep=True)
    return "fuzzed"


def test_every_character_of_an_object_reaches_its_children(shell: Shell) -> None:
    points = (*range(1, 0x300), *range(0x2000, 0x2070), 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1F642, 0x10FFFF)
    data = {"text": "".join(map(chr, points)), "escapes": r"\ud83d \\ud83d \U0001F642"}
    meta = {"name": "characters", "namespace": "default", "annotations": {"key": "\U0001f642"}}
    made_of = shell.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    assert made_of["data"] == data
    assert made_of["metadata"]["annotations"] == meta["annotations"]


@pytest.mark.parametrize("levels", [1200, 4000, 9900])
def test_what_nests_without_end_is_stored_and_hides_nothing(
    bare_cluster: Cluster, shell: Shell, kept: str, levels: int
) -> None:
    body = specdep({"template.spec": {"x": "DEEP"}}, name=f"deep-{levels}")
    text = json.dumps(body).replace('"DEEP"', '{"a":' * levels + "1" + "}" * levels)
    path = OWNER.path("default")
    bare_cluster.kubectl("create", "--raw", path, "-f", "-", input=text)
    try:
        assert {kept, f"deep-{levels}"} <= set(shell.names())
        assert "64 levels" in tick_twice(shell.get(f"deep-{levels}")).refused
    finally:
        bare_cluster.kubectl("delete", "specdep", f"deep-{levels}", "-n", "default")


@pytest.mark.timeout(300 + 5 * OBJECTS)
@seed(SEED)
@FUZZ
@given(body=fuzzed())
def test_every_object_is_refused_in_clear_words_or_served(
    server: Server, shell: Shell, kept: str, body: dict[str, Any]
) -> None:
    note(f"SPECULATIVE_FUZZ_SEED={SEED} SPECULATIVE_FUZZ_OBJECTS={OBJECTS}")
    tick_twice(body)  # as stored before a rule existed, or past the API server
    try:
        stored = server.create(body)
    except ApiException as error:
        clear(error)
        return
    found = tick_twice(stored)
    # How deep a template nests is the one thing that the definition cannot bound.
    assert not found.refused or "levels" in found.refused, found.refused
    for status in found.statuses:
        server.write_status(kept, status)
    for manifest in found.manifests:
        if manifest["kind"] == POD_MONITOR.kind:
            continue  # this server has no such kind
        try:
            shell.apply(manifest)
        except InvalidError as error:
            late(stored, manifest, error)


def clear(error: ApiException) -> None:
    """Fails unless the refusal names a field of the spec."""
    refusal = json.loads(error.body or "{}")
    assert error.status in (400, 422), refusal
    assert "spec" in refusal["message"], refusal


def late(stored: Mapping[str, Any], manifest: Mapping[str, Any], error: InvalidError) -> None:
    """Fails unless nobody but the API server could know: what a template makes of a Deployment."""
    assert manifest["kind"] == "Deployment", error
    assert (stored["spec"].get("template") or {}).get("spec"), f"refused late: {error}"
