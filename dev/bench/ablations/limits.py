"""`python -m bench.ablations.limits`: what the oracle itself loses when it must wait, or write seldom.

The oracle of the bench knows what is true now and may write every 5 s. Here it knows what was true some seconds ago, as
any reader of metrics does, and has as many writes as the tuner: a mark for what delay and economy alone cost. The last
line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.tuner import judge
from bench.tuner.traces import ROOT
from bench.tuner.work import Task, be_nice, make, perform
from speculative_lab.sim import score
from speculative_lab.sim.catalogue import ALL
from speculative_lab.sim.experiment import run
from speculative_lab.sim.oracle import TableOracle, goodput, present_share, true_lengths
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.scenarios import Case
from speculative_lab.sim.score import Run
from speculative_lab.sim.workload import Workload
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.pace import PER_HOUR, SAVED

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

OUT = ROOT / "build" / "bench" / "limits.json"
LEAST_GAIN = 0.01
"""Log speed at the load of now that a write must bring, where writes are few."""


@dataclass(frozen=True, slots=True)
class Limit:
    """`lag` in looks of 5 s; `few`: with the tuner's writes."""

    name: str
    lag: int
    few: bool


LIMITS = (Limit("lag 15 s", 3, False), Limit("few writes", 0, True), Limit("both", 3, True))


class LimitedOracle(TableOracle):
    """The oracle, late or short of writes."""

    name = "limited_oracle"

    def __init__(self, plant: Plant, workload: Workload, limit: Limit) -> None:
        super().__init__(plant, workload)
        self._limit = limit
        self._known: deque[tuple[float, float, float]] = deque(maxlen=limit.lag + 1)
        self._left, self._batch = SAVED, 1.0

    def act(self, deployment: Deployment) -> None:
        batches = [self._take(deployment, replica) for replica in range(deployment.replicas)]
        self._batch = max(1.0, float(np.mean([one for one in batches if one > 0] or [self._batch])))
        self._known.append((deployment.now, self._context, self._prompts))
        self._left = min(SAVED, self._left + PER_HOUR * self.interval / 3600.0)
        then, context, prompts = self._known[0]
        lengths, share = true_lengths(self._plant.knobs.ks, self._workload, then), present_share(self._workload, then)
        speeds = goodput(self._plant, lengths, share, context, prompts)
        table = KTable.from_dense([self._plant.knobs.ks[place] for place in np.argmax(speeds, axis=1)])
        if table != self._table and (self._table is None or self._worth(table, speeds)):
            self._left -= 0.0 if self._table is None else 1.0
            self._table = table
            self.journal.writes.append(deployment.now)
            deployment.set_table(table, delay=0.0)

    def _take(self, deployment: Deployment, replica: int) -> float:
        log = deployment.steps(replica)
        self._look(log)
        return float(log.scheduled.mean()) if len(log.scheduled) else 0.0

    def _worth(self, table: KTable, speeds: np.ndarray) -> bool:
        if not self._limit.few:
            return True
        row, ks = round(min(self._batch, len(speeds))) - 1, self._plant.knobs.ks
        old, new = (one.k_at(row + 1) for one in (self._table or table, table))
        gain = float(np.log(speeds[row, ks.index(new)] / speeds[row, ks.index(old)]))
        return self._left >= 1.0 and gain > LEAST_GAIN


def lost(task: Task) -> tuple[str, dict[str, float]]:
    """Regret in percent of each limit on one case."""
    case = make(task)
    oracle = perform(task).run
    runs = {limit.name: _play(case, limit) for limit in LIMITS}
    return task.scenario, {name: round(100.0 * score.regret(run, oracle), 2) for name, run in runs.items()}


def _play(case: Case, limit: Limit) -> Run:
    return run(
        case.plant, case.workload, LimitedOracle(case.plant, case.workload, limit), case.seconds, case.seed,
        replicas=case.scenario.replicas, restarts=case.restarts, routing=case.scenario.routing,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    names = list(sys.argv[1:] if arguments is None else arguments)
    chosen = [one for one in ALL if not names or one.name in names]
    wanted = [Task(one.name, 1, False, judge.ORACLE) for one in chosen]
    with ProcessPoolExecutor(max_workers=2, initializer=be_nice) as pool:
        found = dict(pool.map(lost, wanted))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    for name, losses in found.items():
        print(f"{name:18s} " + "  ".join(f"{limit} {value:5.2f}" for limit, value in losses.items()), file=sys.stderr)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
