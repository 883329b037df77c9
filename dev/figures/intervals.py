"""Holds the 80 % interval of `speculative plan` against measurements, as docs/tuning-mathematics.md tells.

`PYTHONPATH=dev python -m figures.intervals`. Two things are judged: each row of dev/data/published/plain_pods.csv, by
the very interval that `plan` prints for such a deployment, and every measured speed-up of cases.csv, by the prediction
of `speculative cases` with the width that `plan` gives it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from speculative_lab.cases.prediction import CasePrediction, knobs_of, predict
from speculative_operator.cli.beliefs import beliefs_at
from speculative_operator.cli.subject import subject
from speculative_operator.domain.decision import Interval, Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Mode, Workload
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.traffic import Traffic

PUBLISHED = Path(__file__).parents[2] / "dev" / "data" / "published"
_V1 = {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One measurement beside what `plan` says: gains over pods without a speculator, in percent."""

    case: str
    requests: float
    k: int
    interval: Interval
    measured: float

    @property
    def inside(self) -> bool:
        return self.interval.low <= self.measured <= self.interval.high

    @property
    def width(self) -> float:
        """Log of the speed at the upper end over that at the lower one."""
        return math.log((100.0 + self.interval.high) / (100.0 + self.interval.low))


def plain_pods() -> list[Judged]:
    """Every row of plain_pods.csv beside the interval of `plan`."""
    with (PUBLISHED / "plain_pods.csv").open(encoding="utf-8", newline="") as lines:
        return [_judge(row) for row in csv.DictReader(lines)]


def _judge(row: Mapping[str, str]) -> Judged:
    k, requests = int(row["k"]), float(row["requests"])
    traffic = Traffic(context=float(row["context"]), prompt_ratio=float(row["prompt_ratio"]))
    view = outlook(subject(_body(row)).policy, traffic=traffic)
    belief = next(one for one in beliefs_at(view, requests) if one.k == k)
    speed = float(row["drafting"]) / float(row["plain"])
    gain = 1.0 / speed if "TPOT" in row["metric"] else speed
    return Judged(row["case"], requests, k, belief.gain, 100.0 * (gain - 1.0))


def _body(row: Mapping[str, str]) -> dict[str, Any]:
    """The deployment that was measured."""
    return {
        "verifier": {
            "model": f"hf://{row['verifier']}", "tensorParallelSize": int(row["accelerators"]), "maxNumSeqs": 256,
            **({"quantization": row["quantization"]} if row["quantization"] else {}),
        },
        "speculator": {"method": row["method"], "model": f"hf://{row['speculator']}"},
        "engine": {"type": row["engine"], "version": row["version"], "env": [_V1] if row["runner"] == "V1" else []},
        "accelerator": {"product": row["accelerator"]},
        "speculation": {"workload": row["workload"], "maxSpeculativeTokens": max(int(row["k"]), 3)},
    }  # fmt: skip


def published() -> list[tuple[CasePrediction, tuple[float, float]]]:
    """Every measured speed-up of cases.csv, predicted, with the log lengths of `plan`'s interval below and above it."""
    with (PUBLISHED / "cases.csv").open(encoding="utf-8", newline="") as lines:
        predicted = [predict(row) for row in csv.DictReader(lines)]
    judged = [one for one in predicted if one.measured and one.log_error is not None]
    return [(one, _span(one)) for one in judged if one.case.acceptance_percent is None]


def holds(one: CasePrediction, span: tuple[float, float]) -> bool:
    """True when the published speed-up lies within the interval."""
    return -span[1] <= (one.log_error or 0.0) <= span[0]


def _span(one: CasePrediction) -> tuple[float, float]:
    case, text = one.case, one.case.text
    facts = PairFacts(case.verifier, case.speculator, case.accelerator, case.accelerators, method=case.method)
    knobs = knobs_of(case, case.drafting)
    shared = 0.0 if case.decode_only else text.prompt * (1.0 - text.shared) / text.output
    traffic = Traffic(context=text.prompt + text.output / 2.0, prompt_ratio=shared)
    policy = Policy(mode=Mode.AUTO, knobs=knobs, facts=facts, workload=text.workload or Workload.MIXED)
    view = outlook(policy, traffic=traffic)
    if case.accept_length or case.accept_rate:
        known = replace(view.drafts, variance=np.zeros_like(view.drafts.variance), common=0.0)
        view = replace(view, drafts=known)
    return view.span_from_off(nearest(one.batch, knobs.max_batch), view.ks.index(case.drafting.k))


def main() -> int:
    """Print the table of the four cases, and the share of published rows that the interval holds."""
    print("| Measured | Requests | K | `plan` | Measured gain |\n|---|---|---|---|---|")
    for row in plain_pods():
        low, mid, high = row.interval.low, row.interval.mid, row.interval.high
        cells = row.case, f"{row.requests:g}", str(row.k), f"{mid:+.0f} ({low:+.0f} to {high:+.0f}) %"
        print(f"| {' | '.join(cells)} | {row.measured:+.0f} %{'' if row.inside else ' (outside)'} |")
    found, sources = published(), dict[str, list[bool]]()
    for one, span in found:
        sources.setdefault(one.case.source, []).append(holds(one, span))
    print(
        f"\n{sum(map(sum, sources.values()))} of {len(found)} measured speed-ups lie inside; "
        f"mean share over {len(sources)} sources {100.0 * mean(map(mean, sources.values())):.0f} %; "
        f"median width {median(sum(span) for _, span in found):.2f} in log"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
