"""A cluster in a dictionary whose Jobs do what they are told, for tests of pairs that are looked at."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.pairing.known_pairs import facts
from tests.unit.reconcile.worlds import SPEC, Cluster, template

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild
from speculative_operator.domain.jobs import JobSeen, Phase, Progress, Purpose
from speculative_operator.domain.models import ModelFacts, WeightFacts
from speculative_operator.domain.spec import Cache, DeploymentSpec, Method, ModelSource, Scheme, Speculator, Weights
from speculative_operator.reconcile.tick import Outcome
from speculative_operator.reconcile.world import World
from speculative_operator.render import Capabilities

VERIFIER, EAGLE, FOREIGN = "Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
DRAFT = "Qwen/Qwen3-0.6B"
COMMITS = {VERIFIER: "a" * 40, EAGLE: "b" * 40, FOREIGN: "c" * 40, DRAFT: "d" * 40}
SIZES = {VERIFIER: 16_381_470_720, EAGLE: 800_000_000, FOREIGN: 850_000_000, DRAFT: 1_503_264_768}
LOOKING = Capabilities(
    check_pairs=True, job_image="registry.example.com/speculative-operator:1", node_folders=("/var", "/data")
)
CACHED = Weights(cache=Cache("models", size="500Gi"))


def hub(name: str) -> ModelSource:
    return ModelSource(Scheme.HF, name)


def drawn(name: str) -> Speculator:
    return Speculator(Method.EAGLE3, hub(name))


PAIRED = replace(SPEC, speculator=drawn(EAGLE))


def with_cache(spec: DeploymentSpec = PAIRED) -> DeploymentSpec:
    return replace(spec, weights=CACHED)


@dataclass
class Paired(Cluster):
    """`jobs` says of each purpose what becomes of a Job: a JobSeen's fields, laid over one that runs."""

    spec: DeploymentSpec = PAIRED
    capabilities: Capabilities = field(default_factory=lambda: LOOKING)
    commits: dict[str, str] = field(default_factory=lambda: dict(COMMITS))
    fates: dict[Purpose, dict[str, Any]] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    made: list[Purpose] = field(default_factory=list)
    """Jobs made so far."""
    kept: frozenset[str] = frozenset()
    arriving: dict[str, Progress] = field(default_factory=dict)

    def world(self, **change: Any) -> World:
        own: dict[str, Any] = {"jobs": self.jobs(), "claims": frozenset(self.claims), "kept": self.kept}
        own["arriving"] = dict(self.arriving)
        return super().world(**(own | change))

    def jobs(self) -> tuple[JobSeen, ...]:
        found = [child for (kind, _), child in sorted(self.children.items()) if kind == "Job"]
        return tuple(self._seen(child) for child in found if "labels" in child["metadata"])

    def _seen(self, child: dict[str, Any]) -> JobSeen:
        meta = child["metadata"]
        purpose = Purpose(meta["labels"][names.LABEL_JOB])
        seen = JobSeen(meta["name"], purpose, meta["annotations"][names.ANNOTATION_WANTED], Phase.RUNNING)
        return replace(seen, **self.fates.get(purpose, {}))

    def carry_out(self, action: Action) -> None:
        if isinstance(action, ApplyChild) and action.manifest["kind"] == "PersistentVolumeClaim":
            self.claims.add(action.manifest["metadata"]["name"])
            return
        if isinstance(action, ApplyChild) and action.manifest["kind"] == "Job":
            key = ("Job", action.manifest["metadata"]["name"])
            assert key not in self.children, "a Job is never changed"
            self.made.append(Purpose(action.manifest["metadata"]["labels"][names.LABEL_JOB]))
        if isinstance(action, DeleteChild) and action.kind == "Job":
            self.fates.pop(Purpose(self.children["Job", action.name]["metadata"]["labels"][names.LABEL_JOB]), None)
        super().carry_out(action)

    def args(self, purpose: Purpose) -> list[str]:
        """Command line of the Job."""
        (container,) = self.children["Job", f"demo-{purpose}"]["spec"]["template"]["spec"]["containers"]
        found: list[str] = container["args"]
        return found

    def facts(self, name: str) -> ModelFacts:
        found = facts(name)
        weights = WeightFacts(1, SIZES[name], found.weights.parameters, found.weights.shapes)
        return replace(found, pin=replace(found.pin, resolved=self.commits[name]), weights=weights)

    def read(self) -> None:
        """The Job that reads has read what it was told to."""
        args = self.args(Purpose.INSPECT)
        sides = {side: args[args.index(f"--{side}") + 1] for side in ("verifier", "speculator") if f"--{side}" in args}
        result = {side: self.facts(uri.removeprefix("hf://")).to_json() for side, uri in sides.items()}
        self.fates[Purpose.INSPECT] = {"phase": Phase.SUCCEEDED, "result": result}

    def fetched(self) -> None:
        """The Job that fetches has fetched."""
        assert ("Job", "demo-fetch") in self.children
        self.fates[Purpose.FETCH] = {"phase": Phase.SUCCEEDED, "result": {"seconds": 12.0, "removed": []}}

    def comes(self, progress: Progress) -> None:
        self.fates[Purpose.FETCH] = {"progress": progress}

    def fails(self, purpose: Purpose, reason: str, message: str = "it went wrong", **more: Any) -> None:
        error = {"reason": reason, "message": message, **more}
        self.fates[purpose] = {"phase": Phase.FAILED, "result": {"error": error}}

    def forget(self) -> None:
        """The operator restarts; finished Jobs are gone by then."""
        super().forget()
        for key in [key for key in self.children if key[0] == "Job"]:
            del self.children[key]
        self.fates.clear()

    @property
    def engine_args(self) -> list[str]:
        (container,) = template(self.children["Deployment", "demo"])["spec"]["containers"]
        found: list[str] = container["args"]
        return found

    @property
    def deployment(self) -> Any:
        return deepcopy(self.children.get(("Deployment", "demo")))

    def serves(self) -> bool:
        return ("Deployment", "demo") in self.children


def serving(**change: Any) -> Paired:
    """Pods of a pair that was read, and fetched where there is a cache."""
    cluster = Paired(**change)
    advance(cluster)
    cluster.settle()
    assert cluster.look().actions == ()
    return cluster


def advance(cluster: Paired) -> list[Outcome]:
    """Jobs do well until the pair may be served: every tick's outcome."""
    outcomes = []
    for _ in range(8):
        outcomes.append(cluster.tick())
        if ("Job", "demo-inspect") in cluster.children and Purpose.INSPECT not in cluster.fates:
            cluster.read()
        if ("Job", "demo-fetch") in cluster.children and Purpose.FETCH not in cluster.fates:
            cluster.fetched()
        cluster.roll()
    return outcomes


def told(outcome: Outcome) -> list[tuple[str, str]]:
    return [(event.type, event.reason.value) for event in outcome.events]


def state(cluster: Cluster, kind: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    condition = cluster.condition(kind)
    return condition["status"], condition["reason"]
