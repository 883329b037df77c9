"""The pure part by itself: how many decisions, renders and whole ticks a second, without any I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any

import yaml

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.tick import World, tick
from speculative_operator.render import Capabilities, RenderInput, render
from speculative_operator.tuner import Memory, decide, initial_table

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "emulator" / "speculative-deployment.yaml"
NOW = 1_800_000_000.0
TICK_SECONDS = 10.0


def example(name: str = "bench", **metadata: Any) -> dict[str, Any]:
    """The example object as the API server would hand it out."""
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    body["metadata"] |= {"name": name, "namespace": "bench", "uid": f"uid-{name}", "generation": 1} | metadata
    return body


def window(at: float, batch: float, k: float) -> PodWindow:
    """Ten seconds of a pod that decodes `batch` requests and drafts `k` tokens each, with plausible figures."""
    steps = TICK_SECONDS / (0.008 + 0.0001 * batch * (k + 1))
    request_steps = steps * batch
    accepted = 0.45 * k * request_steps
    return PodWindow(
        start=at - TICK_SECONDS, end=at, steps=steps, decode_request_steps=request_steps,
        step_seconds=TICK_SECONDS * batch, first_tokens=steps * 0.05 * batch / 8,
        generated_tokens=request_steps + accepted + steps * 0.05 * batch / 8, prompt_tokens=steps * 60.0,
        running=batch, waiting=0.0, kv_usage=0.3, kv_capacity_tokens=200_000.0,
        drafts=request_steps if k else 0.0, draft_tokens=k * request_steps, accepted_tokens=accepted,
        accepted_per_position=tuple(request_steps * 0.67 * 0.66**j for j in range(int(k))),
    )  # fmt: skip


def policy_of(spec: DeploymentSpec) -> Policy:
    return Policy(
        mode=spec.speculation.mode,
        knobs=engine_for(spec).knobs(spec),
        start_k=spec.speculation.num_speculative_tokens,
        off_policy=spec.speculation.off_policy,
        objective=spec.speculation.objective,
        workload=spec.speculation.workload,
        facts=pair_facts(spec),
    )


def decide_ms(rounds: int = 400) -> dict[str, float]:
    """Milliseconds of one decision, over a load that moves between 1 and 200 requests."""
    spec = to_domain(example())
    policy = policy_of(spec)
    memory = Memory.fresh(initial_table(policy), NOW)
    taken = []
    for number in range(rounds):
        now = NOW + TICK_SECONDS * number
        batch = 1.0 + 199.0 * abs((number % 100) - 50) / 50
        seen = Observation(now, {"pod-0": window(now, batch, float(memory.table.k_at(batch)))})
        started = time.perf_counter()
        memory, _ = decide(memory, seen, policy, now)
        taken.append(1000 * (time.perf_counter() - started))
    return percentiles(taken)


def renders_per_second(seconds: float = 2.0) -> float:
    """Whole renders: every child of one object, from spec to hashed dicts."""
    spec = resolve(to_domain(example()))
    engine = engine_for(spec)
    table = initial_table(policy_of(spec))
    inputs = RenderInput(
        spec=spec, container=engine.container(spec, table), table=table, table_version=1,
        capabilities=Capabilities(pod_monitor=True), strategy={"type": "Recreate"}, owns_replicas=True,
    )  # fmt: skip
    return per_second(lambda: render(inputs), seconds)


def ticks_per_second(seconds: float = 2.0) -> float:
    """Whole ticks of an object at rest that serves: observe, decide, render, plan, status."""
    world, memory = settled()
    clock = [NOW + 60]

    def one() -> None:
        nonlocal memory
        clock[0] += TICK_SECONDS
        outcome = tick(world, memory, Observation(clock[0], {"bench-0": window(clock[0], 12.0, 3.0)}), clock[0])
        memory = outcome.memory

    return per_second(one, seconds)


def settled() -> tuple[World, Memory | None]:
    """An object whose children are all there and ready, as a fleet at rest has them."""
    spec = to_domain(example())
    world = World(spec=spec, status={}, children={}, pods=(), capabilities=Capabilities())
    outcome = tick(world, None, None, NOW)
    applied = [action.manifest for action in outcome.actions if isinstance(action, ApplyChild)]
    children = {(one["kind"], one["metadata"]["name"]): _stored(one) for one in applied}
    pod = {"metadata": {"name": "bench-0", "annotations": {}},
           "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}  # fmt: skip
    world = World(spec=spec, status=outcome.status, children=children, pods=(pod,), capabilities=Capabilities())
    return world, outcome.memory


def _stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    stored = dict(manifest)
    stored["metadata"] = {**manifest["metadata"], "uid": "child", "generation": 1}
    if manifest["kind"] == "Deployment":
        stored["status"] = {
            "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
        }  # fmt: skip
    return stored


def per_second(work: Callable[[], object], seconds: float) -> float:
    work()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        work()
        count += 1
    return round(count / (time.perf_counter() - started), 1)


def percentiles(values: list[float]) -> dict[str, float]:
    """p50 and p99, to the thousandth."""
    if len(values) == 1:
        return {"p50": round(values[0], 3), "p99": round(values[0], 3)}
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)}
