"""A cluster in a dictionary: carries out actions the way API server, Deployment controller and kubelet would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, DeleteChild, PokePod
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.platform import CanarySeen
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculation,
    Speculator,
    Verifier,
)
from speculative_operator.reconcile.snapshot import notes
from speculative_operator.reconcile.snapshot.pods import configs_of
from speculative_operator.reconcile.snapshot.take import Snapshot, take
from speculative_operator.reconcile.tick import Outcome, World, tick
from speculative_operator.reconcile.world import Evidence
from speculative_operator.render import Capabilities
from speculative_operator.render.payload import is_payload
from speculative_operator.tuner import Memory

FULL = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No victims."
NOW = 1_800_000_000.0
SPEC = DeploymentSpec(
    name="demo",
    namespace="models",
    uid="uid-1",
    generation=1,
    verifier=Verifier(ModelSource(Scheme.HF, "Qwen/Qwen3-8B"), "demo", max_num_seqs=256),
    speculator=Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B")),
    accelerator=AcceleratorRequest(product="H100-SXM", hourly_cost=5.0),
    replicas=2,
)
KEPT = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.KEEP_RUNNING))
"""Pods never skip the speculator, so the first table is that of the prior."""
STATIC = replace(SPEC, speculation=Speculation(mode=Mode.STATIC, num_speculative_tokens=3))
OFF = replace(SPEC, speculation=Speculation(mode=Mode.DISABLED))


def restart(spec: DeploymentSpec = SPEC) -> DeploymentSpec:
    """The same with a method that cannot change K live: its table is part of the pod template."""
    return replace(spec, speculator=Speculator(Method.SUFFIX))


@dataclass
class Cluster:
    """One namespace. `tick()` runs one tick, carries out its actions and writes its status."""

    spec: DeploymentSpec = SPEC
    status: dict[str, Any] = field(default_factory=dict)
    children: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    applied: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    capabilities: Capabilities = field(default_factory=Capabilities)
    problems: tuple[Condition, ...] = ()
    memory: Memory | None = None
    leaving: Mapping[str, Memory] = field(default_factory=dict)
    notes: dict[str, Any] | None = None
    """The ConfigMap of notes; beside the children, which are what pods need."""
    remembered: Mapping[str, Any] | None = None
    """What the operator that runs has kept for itself."""
    now: float = NOW
    uids: int = 0
    memo: Memo = field(default_factory=Memo)
    canary: CanarySeen | None = None
    evidence: Evidence | None = None
    upgraded: bool = False
    """Another release of the operator was installed: what it would make anew may wait."""
    templates: int = 0
    """Pod template changes so far: each of them replaces pods."""

    def world(self, **change: Any) -> World:
        values: dict[str, Any] = {
            "spec": self.spec,
            "status": deepcopy(self.status),
            "children": self._with_notes(),
            "payloads": {name: body["data"] for (_, name), body in self.children.items() if is_payload(body)},
            "notes": self.remembered,
            "pods": tuple(deepcopy(self.pods)),
            "capabilities": self.capabilities,
            "problems": self.problems,
            "leaving": self.leaving,
            "memo": self.memo,
            "canary": self.canary,
            "evidence": self.evidence,
        }
        return World(**(values | change))

    def snapshot(self) -> Snapshot:
        """The world as a tick reads it."""
        return take(self.world(), self.now)

    def _with_notes(self) -> dict[tuple[str, str], dict[str, Any]]:
        config = {("ConfigMap", names.notes(self.spec.name)): self.notes} if self.notes is not None else {}
        own = {key: one for key, one in self.children.items() if not is_payload(one)}
        return deepcopy({**own, **config})

    def look(self, observation: Observation | None = None) -> Outcome:
        """One tick whose outcome is not carried out."""
        return tick(self.world(), self.memory, observation, self.now)

    def tick(self, observation: Observation | None = None, seconds: float = 10.0) -> Outcome:
        """One tick, carried out; then time passes."""
        outcome = self.look(observation)
        for action in outcome.actions:
            self.carry_out(action)
        waits = [one for one in outcome.status.get("warnings", ()) if one["reason"] == "UpgradeWaits"]
        assert self.upgraded or not waits, f"no release is another one here, yet: {waits}"
        self.remembered = deepcopy(outcome.notes)
        if self.status != outcome.status:
            self.notes = notes.manifest(self.spec, outcome.notes or {})
        self.status = deepcopy(outcome.status)
        self.memory, self.leaving = outcome.memory, outcome.leaving
        self.now += seconds
        return outcome

    def settle(self, ticks: int = 6) -> Outcome:
        """Ticks and pods coming up until nothing is left to do."""
        for _ in range(ticks):
            outcome = self.tick()
            self.roll()
            if not outcome.actions and outcome.status == self.look().status:
                break
        return self.look()

    def annotate(self, **change: Any) -> None:
        """An annotation of the object: no other generation."""
        self.spec = replace(self.spec, **change)

    def edit(self, **change: Any) -> None:
        """The user edits the spec."""
        self.spec = replace(self.spec, generation=self.spec.generation + 1, **change)

    def forget(self) -> None:
        """The operator restarts."""
        self.memory, self.leaving, self.remembered = None, {}, None
        self.applied = {}

    def carry_out(self, action: Action) -> None:
        if isinstance(action, ApplyChild):
            self._apply(action.manifest)
        elif isinstance(action, DeleteChild):
            found = self.children.get((action.kind, action.name))
            if found is not None and found["metadata"]["uid"] == action.uid:
                del self.children[action.kind, action.name]
        elif isinstance(action, PokePod):
            pod = next(pod for pod in self.pods if pod["metadata"]["name"] == action.pod)
            pod["metadata"]["annotations"][names.ANNOTATION_POKE] = action.value

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        key = (manifest["kind"], manifest["metadata"]["name"])
        old = self.children.get(key)
        new = served(manifest)
        if old is None:
            self.uids += 1
            new["metadata"] |= {"uid": f"child-{self.uids}", "generation": 1, "resourceVersion": "1"}
        else:
            changed = old.get("spec") != new.get("spec")
            new["metadata"]["uid"] = old["metadata"]["uid"]
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + int(changed)
            if "status" in old:
                new["status"] = old["status"]
            if "replicas" not in manifest.get("spec", {"replicas": 1}) and "managedFields" in old["metadata"]:
                # As in server-side apply: what another writer holds too stays as that one has it.
                new["spec"]["replicas"] = old["spec"]["replicas"]
                new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        if manifest["kind"] == "Deployment" and (old is None or template(old) != template(new)):
            self.templates += 1
        self.children[key] = new
        self.applied[key] = deepcopy(new)

    def roll(self) -> None:
        """The Deployment controller and kubelets catch up: every replica is up and ready."""
        deployment = self.children.get(("Deployment", self.spec.name))
        if deployment is None:
            return
        wanted = deployment["spec"].get("replicas", 1)
        mark = f"t{self.templates}"
        up = [pod for pod in self.pods if pod["status"]["phase"] == "Running"]
        kept = [pod for pod in up if pod["metadata"]["labels"]["template"] == mark][:wanted]
        labels = {**deployment["spec"]["template"]["metadata"]["labels"], "template": mark, "pod-template-hash": mark}
        fresh = [pod(f"demo-{mark}-{number}", labels) for number in range(len(kept), wanted)]
        for one in fresh:
            one["spec"] = {**placed(deployment), "nodeName": "node-1"}
        self.pods = [*kept, *fresh]
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted,
        }  # fmt: skip

    def find_no_node(self, message: str = FULL, seconds: float = 60.0) -> None:
        """The controller makes a pod of the new template, and for a while the scheduler finds no node for it."""
        deployment, mark = self.children["Deployment", "demo"], f"t{self.templates}"
        labels = {**template(deployment)["metadata"]["labels"], "template": mark, "pod-template-hash": mark}
        new = pod(f"demo-{mark}-0", labels, ready=False)
        new["metadata"]["annotations"] = dict(template(deployment)["metadata"].get("annotations", {}))
        scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        new["status"] = {"phase": "Pending", "conditions": [{**scheduled, "lastTransitionTime": timestamp(self.now)}]}
        new["spec"] = placed(deployment)
        ready = sum(one["status"]["conditions"][0]["status"] == "True" for one in self.pods)
        self.pods.append(new)
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"], "replicas": len(self.pods),
            "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
        }  # fmt: skip
        self.now += seconds

    @property
    def strategy(self) -> Any:
        """How the workload's pods are replaced."""
        return self.children["Deployment", "demo"]["spec"]["strategy"]

    @property
    def table(self) -> dict[str, Any]:
        """Content of the table ConfigMap."""
        content: dict[str, Any] = json.loads(self.children[self.config("table")]["data"]["table.json"])
        return content

    def config(self, volume: str) -> tuple[str, str]:
        """Kind and name of the ConfigMap that the Deployment's template mounts so; of none that exists where it mounts
        none."""
        return "ConfigMap", configs_of(template(self.children["Deployment", "demo"])).get(volume, f"no-{volume}")

    def condition(self, kind: str) -> dict[str, Any]:
        return next(one for one in self.status["conditions"] if one["type"] == kind)


def placed(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod's spec that the scheduler looks at."""
    spec = template(deployment)["spec"]
    return deepcopy({key: value for key, value in spec.items() if key in ("containers", "nodeSelector", "tolerations")})


def template(deployment: Mapping[str, Any]) -> Any:
    return deployment["spec"]["template"]


def served(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the API server returns for a manifest: defaults added, quantities normalised, empty values dropped."""
    found = deepcopy(dict(manifest))
    if found["kind"] != "Deployment":
        return found
    spec = found["spec"]
    spec.setdefault("replicas", 1)
    spec["template"]["metadata"]["creationTimestamp"] = None
    pod_spec = spec["template"]["spec"]
    pod_spec |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler"}
    for container in pod_spec["containers"]:
        container["terminationMessagePath"] = "/dev/termination-log"
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources["requests"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            container[probe]["httpGet"]["scheme"] = "HTTP"
            container[probe]["successThreshold"] = 1
    for volume in pod_spec["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["defaultMode"] = 420
    return found


def pod(name: str, labels: Mapping[str, str], ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"pod-{name}", "labels": dict(labels), "annotations": {}},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def window(end: float, batch: float = 8.0, k: int = 3, seconds: float = 10.0, survival: float = 0.7) -> PodWindow:
    """A plausible window of a pod that decodes `batch` requests, drafting `k` tokens each."""
    step = 0.008 + 0.0001 * batch * (k + 1) + 0.001 * k
    steps = seconds / step
    requests = steps * batch
    per_position = tuple(requests * survival**place for place in range(1, k + 1))
    accepted = sum(per_position)
    first = requests / 200.0
    return PodWindow(
        start=end - seconds, end=end, steps=steps, decode_request_steps=requests, step_seconds=step * requests,
        first_tokens=first, generated_tokens=requests + accepted + first, prompt_tokens=first * 300.0,
        running=batch, waiting=0.0, kv_usage=0.2, kv_capacity_tokens=400_000.0,
        drafts=requests if k else 0.0, draft_tokens=requests * k, accepted_tokens=accepted,
        accepted_per_position=per_position,
    )  # fmt: skip


def observed(cluster: Cluster, batch: float = 8.0, k: int | None = None, survival: float = 0.7) -> Observation:
    """Every pod seen at `batch` requests, drafting what the table in force says unless told."""
    rows = cluster.status.get("speculation", {}).get("table", [[1, 256, 0]])
    said = next((row[2] for row in rows if row[0] <= batch <= row[1]), 0)
    used = said if k is None else k
    windows = {one["metadata"]["name"]: window(cluster.now, batch, used, survival=survival) for one in cluster.pods}
    return Observation(cluster.now, windows)


def settled(**change: Any) -> Cluster:
    cluster = Cluster(**change)
    outcome = cluster.settle()
    assert outcome.actions == ()
    return cluster


def retuned(**change: Any) -> Cluster:
    """A cluster whose table the tuner has just changed."""
    cluster = settled(**change)
    for _ in range(60):
        outcome = cluster.tick(observed(cluster, batch=200, survival=0.2))
        if any(isinstance(action, ApplyChild) for action in outcome.actions):
            return cluster
    raise AssertionError("the tuner never changed the table at a load where drafts lose")


def plain(name: str) -> str:
    """Name of a child, or of the payload, without the hash by which it belongs to a pair, or to its content."""
    return re.sub("-(table|payload)-[0-9a-f]+$", r"-\1", name)


def applies(outcome: Outcome) -> list[tuple[str, str, Reason]]:
    return [
        (action.manifest["kind"], plain(action.manifest["metadata"]["name"]), action.reason)
        for action in outcome.actions
        if isinstance(action, ApplyChild)
    ]


def remade(outcome: Outcome) -> list[tuple[str, str, Reason]]:
    """The same without what only lets metrics through: its ports come and go with the payload."""
    return [one for one in applies(outcome) if one[0] not in ("NetworkPolicy", "PodMonitor")]


def reasons(outcome: Outcome) -> list[Reason]:
    return [event.reason for event in outcome.events]
