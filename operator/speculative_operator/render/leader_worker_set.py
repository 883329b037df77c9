"""A workload as LWS takes it: a LeaderWorkerSet, whose groups are one replica each. Used by `targets`.

The leader's pod is the pod of a Deployment: it serves, is measured and bears the labels by which Service and monitors
find pods. A worker is made of the same template without what only a server has; vLLM there takes its orders from the
leader (`--headless`). Labels and annotations of the LeaderWorkerSet itself reach no pod.

The leader is ready once its workers have joined, so they must not wait for it: startupPolicy LeaderCreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, mappings
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.environment import RenderError, render_manifest
from speculative_operator.render.podspec import engine_of
from speculative_operator.render.target import TargetKind, common_values, steps

Manifest = dict[str, Any]
SET = "LeaderWorkerSet"
WORKER = "inference-worker"
"""Component label of workers, the pods that do not serve."""
_PREFIX = "leaderworkerset.sigs.k8s.io/"
_LABEL_SET = f"{_PREFIX}name"
_OF_A_SERVER = frozenset({"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"})
"""Fields of the engine's container that a worker has not."""


class LeaderWorkerSetTarget(TargetKind):
    """The target whose groups of pods LWS makes."""

    kind = SET

    def group(self, spec: DeploymentSpec) -> Mapping[str, str]:
        return {_LABEL_SET: names.group(spec.name)}

    def check(self, template: Mapping[str, Any]) -> None:
        metadata = mapping(template, "metadata")
        for part in ("labels", "annotations"):
            taken = min((key for key in mapping(metadata, part) if str(key).startswith(_PREFIX)), default="")
            if taken:
                raise RenderError(f"spec.template.metadata.{part}[{taken}] belongs to LWS: remove it")
        engine = engine_of(mapping(template, "spec"))
        if engine is None or not isinstance(engine.get("args"), list | tuple):
            raise RenderError(
                f"spec.template takes away the container {names.CONTAINER}, or its args; the workers are made of it: "
                "leave it in"
            )

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        body = workload["spec"]
        values = {
            **common_values(workload, spec),
            "name": names.group(spec.name),
            "steps": {"partition": 0, **steps(body["strategy"])},
            "size": spec.nodes,
            "leader": body["template"],
            "worker": worker_of(body["template"]),
        }
        return (render_manifest("leaderworkerset", values),)


def worker_of(template: Mapping[str, Any]) -> Manifest:
    """The template of the workers that belong to a leader of `template`."""
    metadata, pod = mapping(template, "metadata"), mapping(template, "spec")
    own = names.selector("")
    labels = {key: value for key, value in mapping(metadata, "labels").items() if key not in own}
    annotations = {
        key: value for key, value in mapping(metadata, "annotations").items() if not key.startswith("prometheus.io/")
    }
    containers = [_headless(one) if one.get("name") == names.CONTAINER else one for one in mappings(pod, "containers")]
    told = {"labels": {**labels, "app.kubernetes.io/component": WORKER}}
    return {
        "metadata": {**told, "annotations": annotations} if annotations else told,
        "spec": {**pod, "containers": containers},
    }


def _headless(engine: Mapping[str, Any]) -> Manifest:
    kept = {key: value for key, value in engine.items() if key not in _OF_A_SERVER}
    return {**kept, "args": [*(engine.get("args") or ()), "--headless"]}
