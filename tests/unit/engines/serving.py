"""A serving engine as its metrics see it, with the truth beside: for the readers of engines that count otherwise.

Passes decode one batch after another; every request gains its tokens in each pass and ends when it has had its passes.
What each engine's process would count of that follows the sources named in the readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from speculative_operator.domain.observation import Series

START = 1_700_000_000.0


@dataclass(frozen=True)
class Request:
    """Tokens gained in each decode pass, after the first token of the prefill."""

    gains: tuple[int, ...]
    prompt: int = 100

    @property
    def tokens(self) -> int:
        return 1 + sum(self.gains)


@dataclass
class Truth:
    """What happened, exactly."""

    passes: int = 0
    request_steps: int = 0
    decode_tokens: int = 0
    step_seconds: float = 0.0
    seconds: float = 0.0
    requests: list[Request] = field(default_factory=list)


def serve(requests: Sequence[Request], pass_seconds: float = 0.02, at_once: int = 4) -> Truth:
    """All of `requests`, at most `at_once` together, each from its first decode pass to its last."""
    truth = Truth(requests=list(requests))
    waiting, running = list(requests), list[list[int]]()
    while waiting or running:
        while waiting and len(running) < at_once:
            gains = list(waiting.pop(0).gains)
            running += [gains] if gains else []
        if not running:
            break
        truth.passes += 1
        truth.seconds += pass_seconds
        for gains in running:
            truth.request_steps += 1
            truth.decode_tokens += gains.pop(0)
            truth.step_seconds += pass_seconds
        running = [gains for gains in running if gains]
    return truth


def scrape(points: Sequence[tuple[float, Mapping[str, float]]], pod: str = "pod-0", **shared: str) -> list[Series]:
    """Series of `points` (seconds after START, values); a name may carry a label as `name{key=value}`."""
    found: dict[str, list[tuple[float, float]]] = {}
    for moment, values in points:
        for name, value in values.items():
            found.setdefault(name, []).append((START + moment, float(value)))
    return [_series(name, samples, {"pod": pod, "namespace": "models", **shared}) for name, samples in found.items()]


def _series(name: str, samples: list[tuple[float, float]], labels: dict[str, str]) -> Series:
    plain, _, rest = name.partition("{")
    if rest:
        key, _, value = rest.rstrip("}").partition("=")
        labels = {**labels, key: value}
    return Series(plain, labels, tuple(samples))


def crowds_of(shortest: int, k: int = 3) -> st.SearchStrategy[list[Request]]:
    """Requests of `shortest` decode passes and more, of which each yields 1 to `k` + 1 tokens."""

    def request(passes: int, stride: int) -> Request:
        return Request(tuple(1 + (stride * place) % (k + 1) for place in range(passes)))

    return st.lists(
        st.builds(request, st.integers(shortest, shortest + 30), st.integers(1, 50)), min_size=8, max_size=16
    )
