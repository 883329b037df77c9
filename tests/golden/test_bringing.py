"""Pods that bring their weights themselves, by example: bringing/*.yaml, for a folder of the node, for an emptyDir, and
for one in memory with all that sources may need."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.golden.case import HERE
from tests.golden.test_jobs import EVERYTHING
from tests.golden.test_manifests import NOTE
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, advance

from speculative_operator.domain.spec import Cache, EmptyDir, Medium, Weights

CASES = {
    "node-path": Weights(cache=Cache(node_path="/var/lib/speculative-cache")),
    "empty-dir": Weights(cache=Cache(empty_dir=EmptyDir("100Gi"))),
    "memory-everything": replace(EVERYTHING, cache=Cache(empty_dir=EmptyDir("100Gi", Medium.MEMORY))),
}


class Recorded(Paired):
    """Keeps the Deployment as it was rendered: what the API server adds to it is left out."""

    rendered: Any = None

    def carry_out(self, action: Any) -> None:
        manifest = getattr(action, "manifest", {})
        if manifest.get("kind") == "Deployment":
            Recorded.rendered = manifest
        super().carry_out(action)


@pytest.mark.parametrize("name", CASES)
def test_pods_are_as_expected(name: str, regenerate: bool) -> None:
    cluster = Recorded(spec=replace(PAIRED, weights=CASES[name]), capabilities=replace(LOOKING, assigns_uids=False))
    advance(cluster)
    spec = Recorded.rendered["spec"]
    pod = spec["template"]["spec"]
    (engine,) = pod["containers"]
    shown = {
        "progressDeadlineSeconds": spec["progressDeadlineSeconds"],
        "securityContext": pod["securityContext"],
        "initContainers": pod["initContainers"],
        "engine": {"args": engine["args"][:1], "volumeMounts": engine["volumeMounts"]},
        "volumes": pod["volumes"],
    }
    text = NOTE + yaml.safe_dump(shown, sort_keys=False, width=110)
    expected = HERE / "bringing" / f"{name}.yaml"
    if regenerate:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text)
    assert expected.exists(), f"no expected file; run: {NOTE[2:]}"
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def test_every_expected_file_is_looked_at() -> None:
    assert {path.stem for path in (HERE / "bringing").glob("*.yaml")} == set(CASES)
