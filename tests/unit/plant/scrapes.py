"""Expositions of a made-up vLLM pod, for the tests of the session and of the commands that read scrapes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method, Mode
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.catalog import find_accelerator, find_model

KNOBS = KnobSpace(actuator=Actuator.LIVE, ks=(0, 1, 2, 3, 5), max_batch=64)
FACTS = PairFacts(
    find_model("meta-llama/Llama-3.1-8B-Instruct"), None, find_accelerator("H100-SXM"), method=Method.EAGLE3
)
START = 1_700_000_000.0


def policy(**changes: object) -> Policy:
    plain = Policy(mode=Mode.AUTO, knobs=KNOBS, start_k=3, facts=FACTS)
    return replace(plain, **changes)  # type: ignore[arg-type]  # a test names real fields


@dataclass
class Pod:
    """Counters that grow at a steady rate: `requests` decode at once, `steps` a second."""

    requests: float = 8.0
    steps: float = 100.0
    k: int = 3
    survival: tuple[float, ...] = (0.7, 0.5, 0.35)
    positions: int = 5
    speculates: bool = True
    totals: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float) -> Pod:
        """Serve for that long at the rates of now."""
        steps = self.steps * seconds
        decoded, first = steps * self.requests, round(seconds * 2)
        accepted = [decoded * share for share in self.survival[: self.k]]
        self._add("iteration_tokens_total_count", steps)
        self._add("inter_token_latency_seconds_count", decoded)
        self._add("inter_token_latency_seconds_sum", decoded / self.steps if self.steps else 0.0)
        self._add("time_to_first_token_seconds_count", first)
        self._add("time_to_first_token_seconds_sum", 0.05 * first)
        self._add("generation_tokens_total", decoded + sum(accepted) + first)
        self._add("prompt_tokens_total", 500.0 * first)
        if self.speculates and self.k:
            self._add("spec_decode_num_drafts_total", decoded)
            self._add("spec_decode_num_draft_tokens_total", decoded * self.k)
            self._add("spec_decode_num_accepted_tokens_total", sum(accepted))
            for place, count in enumerate(accepted):
                self._add(f"spec_decode_num_accepted_tokens_per_pos_total/{place}", count)
        return self

    def restart(self) -> Pod:
        self.totals.clear()
        return self

    def text(self, **instead: str) -> str:
        """The exposition; `instead` replaces values by metric name without its prefix."""
        names = [
            "iteration_tokens_total_count",
            "inter_token_latency_seconds_count",
            "inter_token_latency_seconds_sum",
            "time_to_first_token_seconds_count",
            "time_to_first_token_seconds_sum",
            "generation_tokens_total",
            "prompt_tokens_total",
            "num_preemptions_total",
        ]
        if self.speculates:
            names += [f"spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")]
            names += [f"spec_decode_num_accepted_tokens_per_pos_total/{place}" for place in range(self.positions)]
        gauges = {"num_requests_running": self.requests, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.2}
        values = {name: self.totals.get(name, 0.0) for name in names} | gauges
        lines = ["# HELP vllm:e2e_request_latency_seconds Histogram of end to end request latency in seconds."]
        lines += ['vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 12.0']
        lines += [_line(name, instead.get(name.partition("/")[0], repr(value))) for name, value in values.items()]
        lines += ['vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="5000"} 1.0']
        return "\n".join(lines) + "\n"

    def _add(self, name: str, amount: float) -> None:
        self.totals[name] = self.totals.get(name, 0.0) + amount


def _line(name: str, value: str) -> str:
    name, _, position = name.partition("/")
    place = f',position="{position}"' if position else ""
    return f'vllm:{name}{{engine="0",model_name="m"{place}}} {value}'
