"""TGI's metrics and their text. Filled by the driver, read by /metrics.

Names and moments are those of huggingface/text-generation-inference 3.3: router/src/server.rs for requests,
backends/v3/src/backend.rs for batches. Prefill generates a token for the requests that decode already, so it is one
pass with theirs. The Rust exporter writes names as they are (counters have no `_total`), what has no buckets as a
summary, and nothing for a series that was never written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import LedgerBook
from speculative_lab.emulator.families import Family, recorded
from speculative_lab.emulator.requests import FinishReason, Request

_T = "tgi_"
SKIPPED = f"{_T}request_skipped_tokens"
QUANTILES = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")


class TgiLedger(LedgerBook):
    """All families of one router."""

    def __init__(self, config: EngineConfig, max_input_tokens: int, max_total_tokens: int) -> None:
        """The two limits (tokens) set buckets of lengths."""
        lengths = {
            f"{_T}request_generated_tokens": hundredths(max_total_tokens),
            f"{_T}request_max_new_tokens": hundredths(max_total_tokens),
            f"{_T}request_input_length": hundredths(max_input_tokens),
            f"{_T}batch_next_size": tuple(float(size) for size in range(1, 1025)),
        }
        super().__init__(recorded("tgi_families.csv", lengths), {}, seeded=False)
        self._config = config
        self._skipped = [0.0, 0.0]
        self.set(f"{_T}batch_max_total_tokens", config.pool().tokens)

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        method = "prefill" if result.prefill_tokens else "decode"
        self._count("batch_inference_count", 1, method)
        self._count("batch_inference_success", 1, method)
        self.observe(f"{_T}batch_forward_duration", result.seconds, method)
        self.observe(f"{_T}batch_inference_duration", result.seconds, method)
        self.observe(f"{_T}batch_decode_duration", 0.0, method)
        self.observe(f"{_T}batch_filter_duration", 0.0, method)
        if result.first:
            self.observe(f"{_T}batch_next_size", len(result.first))
            if result.decoded:
                self._count("batch_concat", 1, "chunking")
        # every request that gained tokens is one record: what came beyond the first of them was drafted
        self._skipped[0] += len(result.gained) + len(result.first)
        self._skipped[1] += float(result.gained.sum()) - len(result.gained)
        self.gauges(running, waiting, kv_usage)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        self.set(f"{_T}batch_current_size", running)
        self.set(f"{_T}batch_current_max_tokens", round(kv_usage * self._config.pool().tokens))
        self.set(f"{_T}queue_size", waiting)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Ledger`."""
        self._count("request_count", 1)
        if reason in (FinishReason.ABORT, FinishReason.ERROR):
            self._count("request_failure", 1, "dropped" if reason is FinishReason.ABORT else "generation")
            return
        self._count("request_success", 1)
        scheduled = request.arrival if request.scheduled is None else request.scheduled
        last = now if request.last_token is None else request.last_token
        values = {
            "request_duration": now - request.arrival,
            "request_validation_duration": 0.0,
            "request_queue_duration": max(scheduled - request.arrival, 0.0),
            "request_inference_duration": last - scheduled,
            "request_mean_time_per_token_duration": (last - scheduled) / max(request.generated, 1),
            "request_generated_tokens": request.generated,
            "request_max_new_tokens": request.max_tokens,
            "request_input_length": request.prompt_tokens,
        }
        for name, value in values.items():
            self.observe(_T + name, value)

    def reject(self, reason: str) -> None:
        """See `Ledger`."""
        self._count("request_count", 1)
        self._count("request_failure", 1, reason)

    def text(self) -> str:
        """The exposition as the Rust exporter writes it."""
        lines: list[str] = []
        for family in self._families.values():
            body = list(self._lines(family))
            if body:
                lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}", *body, ""]
        return "\n".join([*lines, ""])

    def _lines(self, family: Family) -> Iterator[str]:
        if family.kind == "summary":
            count, total = self._skipped
            mean = total / count if count else 0.0
            if count:
                yield from (f'{family.name}{{quantile="{quantile}"}} {mean!r}' for quantile in QUANTILES)
                yield f"{family.name}_sum {total!r}"
                yield f"{family.name}_count {count:g}"
            return
        for value, histogram in self.distributions(family):
            labels = {family.label: value} if family.label else {}
            for bound, number in zip([*map(repr, histogram.bounds), "+Inf"], histogram.cumulative(), strict=True):
                yield f"{family.name}_bucket{_labels({**labels, 'le': bound})} {number:.0f}"
            yield f"{family.name}_sum{_labels(labels)} {histogram.sum!r}"
            yield f"{family.name}_count{_labels(labels)} {histogram.count}"
        for value, number in self.series(family):
            yield f"{family.name}{_labels({family.label: value} if family.label else {})} {number:g}"

    def _count(self, name: str, amount: float, label: str = "") -> None:
        self.add(_T + name, amount, label)


def hundredths(limit: int) -> tuple[float, ...]:
    """A hundred equal parts of `limit`."""
    return tuple(limit / 100 * part for part in range(1, 101))


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
