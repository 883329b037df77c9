"""How the policies of a simulation did, as rows, objects and sentences. Used by `simulate` and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim import score

if TYPE_CHECKING:
    from speculative_lab.cli.arena import Arena, Result

HEADERS = ("POLICY", "SPEED", "REGRET %", "TPOT ms", "p99", "TTFT ms", "p99", "TOKENS/s", "WRITES", "UNSAFE %")
"""Speed in tokens per second of a request; unsafe: 5-minute windows slower than 98 % of K = 0."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds over the requests that ended; None: none did."""

    mean: float | None
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy. None: not known, because there was nothing to compare with or nothing ended."""

    name: str
    speed: float | None
    regret_percent: float | None
    tpot: Latency
    ttft: Latency
    tokens_per_second: float
    requests: int
    writes: int | None
    """Changes of table that reached the pods from outside; None for what sits in the engine or never changes."""
    removals: int
    unsafe_percent: float | None


@dataclass(frozen=True, slots=True)
class Standings:
    """All of them, fastest first; `best_static` is the fastest constant K, 0 included, of those that ran."""

    rows: tuple[Standing, ...]
    best_static: Standing | None

    def of(self, name: str) -> Standing | None:
        return next((row for row in self.rows if row.name == name), None)


def standings(results: list[Result]) -> Standings:
    """The results in order of speed."""
    runs = {result.run.name: result.run for result in results}
    best, off = runs.get("oracle"), runs.get("off")
    rows = tuple(sorted((_standing(one, best, off) for one in results), key=lambda row: -(row.speed or 0.0)))
    constants = [row for row in rows if row.name.startswith("static_") or row.name == "off"]
    return Standings(rows, constants[0] if any(row.name != "off" for row in constants) else None)


def as_object(row: Standing) -> dict[str, Any]:
    """One line of `--json`; docs/cli.md names the fields."""
    return {
        "policy": row.name,
        "speed": _rounded(row.speed),
        "regretPercent": _rounded(row.regret_percent),
        "tpotMs": _latency(row.tpot),
        "ttftMs": _latency(row.ttft),
        "tokensPerSecond": _rounded(row.tokens_per_second),
        "requests": row.requests,
        "writes": row.writes,
        "removals": row.removals,
        "unsafeWindowsPercent": _rounded(row.unsafe_percent),
    }


def as_cells(row: Standing) -> list[str]:
    """One row under HEADERS."""
    latencies = [row.tpot.mean, row.tpot.p99, row.ttft.mean, row.ttft.p99]
    return [
        row.name,
        _cell(row.speed, 2),
        _cell(row.regret_percent, 2),
        *(_cell(value, 1) for value in latencies),
        _cell(row.tokens_per_second, 0),
        _cell(row.writes, 0),
        _cell(row.unsafe_percent, 1),
    ]


def summary(found: Arena, results: list[Result], table: Standings) -> dict[str, Any]:
    """The last line of `--json`."""
    ours, off, static = table.of("ours"), table.of("off"), table.best_static
    return {
        "summary": {
            "title": found.title,
            "simulatedSeconds": found.seconds,
            "seed": found.seed,
            "replicas": found.replicas,
            "fastest": table.rows[0].name,
            "bestStatic": static.name if static else None,
            "oursRegretPercent": _rounded(ours.regret_percent) if ours else None,
            "oursOverOffPercent": _rounded(_over(ours, off)),
            "oursOverBestStaticPercent": _rounded(_over(ours, static)),
            "decideMsP99": _rounded(_decide_ms(results)),
            "simulatorSpeedup": _rounded(_speedup(found, results)),
        }
    }


def sentences(found: Arena, results: list[Result], table: Standings) -> list[str]:
    """What the table means, for people."""
    ours, off, static = table.of("ours"), table.of("off"), table.best_static
    said = []
    if ours is not None and ours.regret_percent is not None:
        compared = "slower" if ours.regret_percent >= 0 else "faster"
        said.append(f"ours is {abs(ours.regret_percent):.2f} % {compared} than the oracle")
    if (over := _over(ours, off)) is not None:
        said.append(f"{over:+.1f} % against no drafts")
    if (over := _over(ours, static)) is not None and static is not None:
        said.append(f"{over:+.1f} % against {static.name}, the best constant in hindsight")
    text = [("; ".join(said) or "ours did not run") + "."]
    text.append(
        f"{found.seconds:.0f} s simulated, seed {found.seed}, {_speedup(found, results):,.0f} times as fast as real"
        + (f"; a scrape and its decision take {took:.1f} ms (p99)" if (took := _decide_ms(results)) else "")
        + "."
    )
    return text


def _standing(result: Result, best: score.Run | None, off: score.Run | None) -> Standing:
    run = result.run
    unsafe, compared = score.unsafe_windows(run, off) if off is not None else (0, 0)
    return Standing(
        name=run.name,
        speed=_known(score.speed(run)),
        regret_percent=_known(100.0 * score.regret(run, best)) if best is not None else None,
        tpot=_latencies(result.watched.tpot),
        ttft=_latencies(result.watched.ttft),
        tokens_per_second=float(run.tokens.sum()) / run.seconds,
        requests=len(result.watched.ttft),
        writes=len(run.writes) if result.session is not None else None,
        removals=len(run.removals),
        unsafe_percent=100.0 * unsafe / compared if compared else None,
    )


def _latencies(seconds: NDArray[np.float64]) -> Latency:
    if not len(seconds):
        return Latency(None, None, None)
    p50, p99 = np.percentile(seconds, [50, 99])
    return Latency(1e3 * float(seconds.mean()), 1e3 * float(p50), 1e3 * float(p99))


def _over(one: Standing | None, other: Standing | None) -> float | None:
    if one is None or other is None or not one.speed or not other.speed:
        return None
    return 100.0 * (one.speed / other.speed - 1.0)


def _decide_ms(results: list[Result]) -> float | None:
    took = next((result.decide_seconds for result in results if result.decide_seconds), ())
    return 1e3 * float(np.percentile(took, 99)) if took else None


def _speedup(found: Arena, results: list[Result]) -> float:
    """Of the median run: the first one may wait for a compiler."""
    return found.seconds / max(float(np.median([result.wall_seconds for result in results])), 1e-9)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _latency(value: Latency) -> dict[str, float | None]:
    return {"mean": _rounded(value.mean), "p50": _rounded(value.p50), "p99": _rounded(value.p99)}


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
