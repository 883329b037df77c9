"""Deployments that scenarios run: what a user writes down of them, and what they truly cost. Used by `scenarios`.

A pair is the spec (from which engine adapter and catalogue make what the tuner knows) beside a truth of its own: step
costs as literal figures, so that the judge does not move when the tuner's prior is improved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from speculative_lab.sim.plant import Plant
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    Method,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculation,
    Speculator,
    Verifier,
)
from speculative_operator.domain.table import KnobSpace
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import engine_for
from speculative_operator.physics.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Pair:
    """Names as a user writes them; the rest is the truth, in seconds and tokens."""

    verifier: str
    method: Method
    speculator: str
    accelerator: str
    costs: StepCosts
    kv_tokens: int
    kv_tokens_without: int
    eager_seconds: float

    def spec(self, replicas: int = 1) -> DeploymentSpec:
        """The object as a user would write it, with `offPolicy: Remove`, so that every run can show a wrong removal."""
        return DeploymentSpec(
            name="simulated",
            namespace="default",
            uid="simulated",
            generation=1,
            verifier=Verifier(ModelSource(Scheme.HF, self.verifier), "model"),
            speculator=Speculator(self.method, ModelSource(Scheme.HF, self.speculator) if self.speculator else None),
            speculation=Speculation(off_policy=OffPolicy.REMOVE),
            accelerator=AcceleratorRequest(product=self.accelerator),
            replicas=replicas,
        )

    def policy(self, plant: Plant) -> Policy:
        """What the tuner knows: adapter, catalogue, and the KV capacity that the engine reports at start."""
        spec = self.spec()
        facts = replace(
            pair_facts(spec),
            kv_capacity_tokens=plant.kv_tokens,
            kv_capacity_tokens_without_speculator=plant.kv_tokens_without,
        )
        return Policy(
            mode=spec.speculation.mode,
            knobs=engine_for(spec).knobs(spec),
            off_policy=spec.speculation.off_policy,
            objective=spec.speculation.objective,
            workload=spec.speculation.workload,
            facts=facts,
        )

    def plant(self) -> Plant:
        """The deployment as it truly is."""
        knobs = engine_for(self.spec()).knobs(self.spec())
        return Plant(
            costs=self.costs,
            knobs=replace(knobs, capture_sizes=knobs.capture_sizes or capture_sizes(knobs)),
            kv_tokens=self.kv_tokens,
            kv_tokens_without=self.kv_tokens_without,
            eager_seconds=self.eager_seconds,
        )


def capture_sizes(knobs: KnobSpace) -> tuple[int, ...]:
    """Sizes that engines capture by default where the adapter does not tell: 1, 2, 4, then every 8 up to 256 and every
    16 up to the ceiling."""
    ceiling = knobs.capture_ceiling_tokens or 0
    return tuple(size for size in (1, 2, 4, *range(8, 257, 8), *range(272, 4097, 16)) if size <= ceiling)


def _costs(
    verifier: tuple[float, float, float], draft: tuple[float, float, float], overhead: float, tax: float = 0.0,
    experts: tuple[float, float] = (0.0, 1.0),
) -> StepCosts:  # fmt: skip
    """Arguments: (ms fixed, us a token, ns a KV token) of the verifier and of a draft pass, then ms."""
    return StepCosts(
        verifier[0] * 1e-3, verifier[1] * 1e-6, verifier[2] * 1e-9, draft[0] * 1e-3, draft[1] * 1e-6, draft[2] * 1e-9,
        overhead * 1e-3, tax * 1e-3, experts[0] * 1e-3, experts[1],
    )  # fmt: skip


_LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
_HEAD = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"

PAIRS: Mapping[str, Pair] = {
    # Verifier, drafting and overhead as fitted by the authors of SpecDecode-Bench (predictor.py @32fdccb); 3 passes.
    "eagle_h100": Pair(
        _LLAMA, Method.EAGLE3, _HEAD, "H100-SXM",
        _costs((5.886, 21.01, 39.26), (0.712, 0.841, 2.38), 1.207), 385_000, 404_000, 0.004,
    ),
    # The same on another accelerator: data-sheet rates, about 0.8 of the bandwidth and 0.65 of the arithmetic.
    "eagle_a100": Pair(
        _LLAMA, Method.EAGLE3, _HEAD, "A100-80GB",
        _costs((10.0, 77.0, 68.0), (1.10, 3.1, 4.0), 1.4), 385_000, 404_000, 0.005,
    ),
    "eagle_b300": Pair(
        "meta-llama/Llama-3.3-70B-Instruct", Method.EAGLE3, "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "B300-SXM",
        _costs((23.6, 86.0, 53.0), (1.45, 3.4, 3.0), 1.2), 281_000, 293_000, 0.009,
    ),
    # Fitted to the 16 published speed-ups of this pair (physics.step_costs); the drafter holds KV of its own.
    "draft_h100": Pair(
        "Qwen/Qwen3-8B", Method.DRAFT_MODEL, "Qwen/Qwen3-0.6B", "H100-SXM",
        _costs((7.21, 20.35, 43.33), (1.36, 1.042, 28.38), 1.247, 0.288), 196_000, 357_000, 0.004,
    ),
    "draft_a40": Pair(
        "Qwen/Qwen2.5-7B-Instruct", Method.DRAFT_MODEL, "Qwen/Qwen2.5-0.5B-Instruct", "A40",
        _costs((28.5, 200.0, 100.0), (3.0, 13.0, 22.0), 1.5, 0.25), 359_000, 453_000, 0.005,
    ),
    # Reading 128 experts of 8 used, at 0.8 of the bandwidth; small kernels reach less of the arithmetic.
    "moe_h200": Pair(
        "Qwen/Qwen3-30B-A3B", Method.EAGLE3, "AngelSlim/Qwen3-a3B_eagle3", "H200-SXM",
        _costs((2.4, 18.0, 26.0), (0.75, 0.6, 1.0), 1.2, experts=(15.0, 0.0625)), 640_000, 655_000, 0.006,
    ),
    # As DeepSeek-V4-Flash on B300 behaves (vLLM blog, 2026-08-14): a step beyond 1024 tokens costs 80 ms more.
    "moe_b300": Pair(
        "Qwen/Qwen3-30B-A3B", Method.EAGLE3, "AngelSlim/Qwen3-a3B_eagle3", "B300-SXM",
        _costs((1.8, 8.5, 15.0), (0.55, 0.35, 0.7), 1.2, experts=(8.5, 0.0625)), 1_750_000, 1_780_000, 0.080,
    ),
    "block_h200": Pair(
        "Qwen/Qwen3-32B", Method.DFLASH, "z-lab/Qwen3-32B-DFlash", "H200-SXM",
        _costs((17.2, 100.0, 62.0), (1.6, 5.0, 5.0), 1.3), 198_000, 222_000, 0.007,
    ),
    "ngram_h100": Pair(
        _LLAMA, Method.NGRAM, "", "H100-SXM",
        _costs((5.886, 21.01, 39.26), (0.05, 0.12, 0.0), 1.207), 404_000, 404_000, 0.004,
    ),
}  # fmt: skip
