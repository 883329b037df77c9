"""Figures of the serving pods in one window, or why they are missing. Made by engines, used by tuner and reconcile.

Counter symbols follow docs/metrics.md: N steps, R decode request-steps, F first tokens, G generated tokens,
D drafts, T draft tokens, A accepted draft tokens, P accepted per position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speculative_operator.domain.reasons import Reason, without_credentials


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that is missing, and why. Never replaced by 0 or by an older value."""

    reason: Reason
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_credentials(self.message))


@dataclass(frozen=True, slots=True)
class Series:
    """Raw samples of one time series, oldest first: (unix seconds, value)."""

    name: str
    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class StepCell:
    """Exact telemetry of one (K, batch bucket), where the payload exports it."""

    k: int
    batch: float
    """Mean scheduled requests of the cell's steps."""
    steps: float
    seconds: float
    tokens: float
    """Tokens emitted."""
    prefill_tokens: float = 0.0
    """Prompt tokens computed in these steps."""

    @property
    def requests(self) -> float:
        """Request-steps, those in prefill included."""
        return self.batch * self.steps


@dataclass(frozen=True, slots=True)
class BlockTotals:
    """Blocks of engine steps at one K, added up."""

    steps: float
    seconds: float
    requests: float
    """Scheduled requests, added up over the steps."""
    request_seconds: float
    """Seconds of each step times its scheduled requests."""
    tokens: float
    """Tokens emitted."""
    decode_steps: float = 0.0
    """Steps that computed no prompt tokens, and below the seconds of these."""
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Blocks of steps at a tried K, each beside blocks at the active K (docs/metrics.md, "Tried blocks").

    Conditions that change slowly are the same in both: the machine, contexts, prompts per second, the requests
    themselves.
    """

    k: int
    """The tried K."""
    against: int
    """The active K."""
    first: int
    last: int
    """Decoding requests for which K was tried, both inclusive."""
    blocks: float
    """Number of tried blocks that were compared."""
    trial: BlockTotals
    beside: BlockTotals
    seconds_square: float
    """Sum over tried blocks of the squared difference of log(seconds / steps) from the blocks beside it."""
    tokens_square: float
    """The same sum for log(tokens / requests)."""


Histogram = tuple[tuple[float, float], ...]
"""(upper bound in seconds, observations in this bucket alone), ascending; the last bound is infinite."""


@dataclass(frozen=True, slots=True)
class PodWindow:
    """Exact counter differences of one pod between two scrapes, and gauges sampled within.

    Times in seconds, everything else in counts. `drafts` and the fields after it are None when the engine runs
    without a speculator (vLLM exports no such series then).
    """

    start: float
    end: float
    steps: float
    decode_request_steps: float
    step_seconds: float
    """Sum of step periods over request-steps (vLLM `inter_token_latency_seconds_sum`)."""
    first_tokens: float
    generated_tokens: float
    prompt_tokens: float
    """Prompt tokens computed, cache hits excluded."""
    running: float
    waiting: float
    preemptions: float = 0.0
    kv_usage: float | None = None
    kv_capacity_tokens: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    ttft_seconds: float = 0.0
    queue_seconds: float | None = None
    """Seconds of `ttft_seconds` before requests were first scheduled; None where the engine does not tell."""
    cells: tuple[StepCell, ...] = ()
    drafted_per_position: tuple[float, ...] = ()
    """Drafts verified at each position, where the engine or the payload tells it; with it the survival of a position is
    exact whatever K were mixed in the window. Same length as `accepted_per_position`, or empty."""
    table_version: int | None = None
    """Version of the table that the payload has activated; None where no payload tells it."""
    live: bool | None = None
    """True when the payload re-reads its table, False when it runs but is inert; None without a payload that tells."""
    inert: str = ""
    """Why the payload is inert, in its words; empty where it is not, or does not say."""
    engine_version: str = ""
    """Release that the payload found in the pod; empty when unknown."""
    comparisons: tuple[Comparison, ...] = ()
    tpot_histogram: Histogram = ()
    """Seconds per output token after the first, of each request that ended; empty when unknown."""
    ttft_histogram: Histogram = ()
    """Seconds to the first token, of each request that got one; empty when unknown."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def batch(self) -> float:
        """Mean decoding requests per step, R / N; 0 when no step ran."""
        return self.decode_request_steps / self.steps if self.steps else 0.0

    @property
    def load(self) -> float:
        """Mean scheduled requests per step, (R + F) / N: the key that the engine looks its table up with."""
        return (self.decode_request_steps + self.first_tokens) / self.steps if self.steps else 0.0

    @property
    def step_period(self) -> float | None:
        """Mean seconds of a step as a decoding request sees it (tau = I / R)."""
        return self.step_seconds / self.decode_request_steps if self.decode_request_steps else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a decoding request gains per step (g); 1 without speculation."""
        if not self.decode_request_steps:
            return None
        return (self.generated_tokens - self.first_tokens) / self.decode_request_steps

    @property
    def tpot(self) -> float | None:
        """Seconds per output token, tau / g."""
        tau, gain = self.step_period, self.tokens_per_step
        return tau / gain if tau is not None and gain else None

    @property
    def mean_k(self) -> float | None:
        """Drafted tokens per decode request-step, steps at K = 0 included."""
        if self.draft_tokens is None or not self.decode_request_steps:
            return None
        return self.draft_tokens / self.decode_request_steps

    @property
    def acceptance_rate(self) -> float | None:
        if self.accepted_tokens is None or not self.draft_tokens:
            return None
        return self.accepted_tokens / self.draft_tokens

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per verification including the bonus token, on drafted steps: 1 + A / D."""
        return 1.0 + self.accepted_tokens / self.drafts if self.accepted_tokens is not None and self.drafts else None

    @property
    def prefill_per_step(self) -> float:
        """Prompt tokens computed per step, p."""
        return self.prompt_tokens / self.steps if self.steps else 0.0

    @property
    def mean_context(self) -> float | None:
        """Tokens held per running request, from the KV gauges; None when unknown."""
        if self.kv_usage is None or self.kv_capacity_tokens is None or self.running < 1:
            return None
        return self.kv_usage * self.kv_capacity_tokens / self.running


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the pods of an object. A pod is in `pods` when it is ready; its value is a window or a gap."""

    time: float
    pods: Mapping[str, PodWindow | Gap] = field(default_factory=dict)
    gap: Gap | None = None
    """Why no pod could be seen at all (Prometheus down); `pods` is then empty."""
    table_version: int | None = None
    """Version of the table that pods were last told: windows say which one they run, where the payload tells it."""
    newcomers: frozenset[str] = frozenset()
    """Pods that became ready a moment ago: the tuner does not wait for their figures."""
    direct: str = ""
    """Why the operator read figures from the pods themselves; empty where they come from Prometheus."""

    @property
    def windows(self) -> dict[str, PodWindow]:
        return {pod: window for pod, window in self.pods.items() if isinstance(window, PodWindow)}

    @property
    def gaps(self) -> dict[str, Gap]:
        return {pod: gap for pod, gap in self.pods.items() if isinstance(gap, Gap)}
