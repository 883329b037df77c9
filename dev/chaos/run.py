"""One run: lays the ground, does one fault after the other, has each judged, and leaves what came of it.

Called by `__main__` and by the short run of the tests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from chaos.faults import CONTROL
from chaos.faults.fault import Fault
from chaos.ground import AUTO, Ground, Say, lay
from chaos.judge import Check, Harm, Meanwhile, Sight, find_harm, unsettled
from chaos.sights import Mark
from demo.scene import SceneError
from devcluster.errors import DevClusterError

SETTLE_SECONDS = 150.0
"""Longest wait for the state to come back once a fault has ended; some waits are of the operator's own making."""
LONGEST_IN_SHORT = 14.0
"""How long a fault stays at most in a short run: past the time for which a Lease may go without renewal."""
ANSWER_SECONDS = 60.0
"""Longest wait for answers that prove that clients are served."""


@dataclass
class Outcome:
    """What came of one fault."""

    name: str
    expects_harm: bool
    harms: list[Harm]
    answered: int = 0
    failed: int = 0
    ks: list[int] = field(default_factory=list)
    """K that engines ran meanwhile."""
    settled_seconds: float | None = None
    """From the end of the fault until the state was back; None: it never was."""
    told: list[str] = field(default_factory=list)
    """Conditions that were otherwise meanwhile."""
    operator_starts: int = 0
    tracebacks: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """As it must be: no harm, or the harm that the control does on purpose."""
        return any(harm.check is Check.PODS for harm in self.harms) if self.expects_harm else not self.harms

    def of(self, check: Check) -> list[str]:
        """Sentences on harm of one kind."""
        return [harm.text for harm in self.harms if harm.check is check]


@dataclass
class Report:
    """What a run leaves."""

    seed: int
    kills: int
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return bool(self.outcomes) and all(outcome.good for outcome in self.outcomes)

    def summary(self) -> dict[str, Any]:
        """For the last line and for tests."""
        return {
            "ok": self.good,
            "seed": self.seed,
            "kills": self.kills,
            "seconds": round(self.seconds),
            "faults": len(self.outcomes),
            "requests": {
                "answered": sum(one.answered for one in self.outcomes),
                "failed": sum(one.failed for one in self.outcomes),
            },
            "harmful": [one.name for one in self.outcomes if not one.good],
            "outcomes": [{**asdict(one), "good": one.good} for one in self.outcomes],
        }


def play(seed: int, faults: Sequence[type[Fault]], *, kills: int, short: bool = False, say: Say = print) -> Report:
    """The whole run."""
    started = time.monotonic()
    report = Report(seed, kills)
    say(f"seed {seed}: the same seed draws the same faults")
    with ExitStack() as stack:
        ground = lay(stack, seed, kills, short=short, say=say)
        baseline = _rest(ground)
        say(f"at rest after {time.monotonic() - started:.0f} s")
        for fault in faults:
            outcome = _one(ground, fault(), baseline)
            report.outcomes.append(outcome)
            say(line(outcome))
            for harm in outcome.harms:
                say(f"    {harm.check}: {harm.text}")
    report.seconds = time.monotonic() - started
    return report


def line(outcome: Outcome) -> str:
    """One fault for the terminal."""
    settled = "never back" if outcome.settled_seconds is None else f"back after {outcome.settled_seconds:.0f} s"
    return (
        f"{'good' if outcome.good else 'HARM'}  {outcome.name}: {outcome.failed} of {outcome.answered + outcome.failed}"
        f" requests failed, K {outcome.ks}, {settled}, {outcome.seconds:.0f} s in all; {', '.join(outcome.told)}"
    )


def _rest(ground: Ground) -> Sight:
    """The state that every fault has to come back to: the first in which nothing is amiss. Raises SceneError."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        sight = ground.observer.look(ground.foreign())
        amiss = [harm.text for harm in unsettled(sight, sight)]
        for name in ground.allowed:
            served = sight.served[name]
            if served.conditions.get("MetricsAvailable", ("",))[0] != "True":
                amiss.append(f"{name}: no metrics")
            if (served.mounted is None) != (name != AUTO):
                amiss.append(f"{name}: table {served.mounted} in a ConfigMap")
            if served.mounted is not None and served.version_in_pods is None:
                amiss.append(f"{name}: its pods do not say which table they run")
            # The operator writes them once, a minute after it has something to note; of AUTO, others have their name.
            if name != AUTO and f"configmaps/{name}-notes" not in served.children:
                amiss.append(f"{name}: no notes yet")
        if not amiss:
            return sight
        if time.monotonic() > deadline:
            raise SceneError(f"not at rest within {SETTLE_SECONDS:.0f} s: {'; '.join(amiss)}")
        time.sleep(1.0)


def _one(ground: Ground, fault: Fault, baseline: Sight) -> Outcome:
    """One fault, from its preparation until the state is back, and the judgement."""
    began = time.monotonic()
    fault.prepare(ground)
    before = Sight(baseline.served, ground.observer.look({}).pods, ground.foreign())
    mark, starts, tracebacks = ground.observer.mark(), ground.operator.starts, ground.operator.tracebacks()
    harms: list[Harm] = []
    try:
        fault.inject(ground)
        time.sleep(min(fault.seconds, LONGEST_IN_SHORT) if ground.short else fault.seconds)
    except (SceneError, DevClusterError) as error:
        harms.append(Harm(Check.STATE, f"the fault could not be done: {error}"))
    told = ground.observer.told(mark, baseline.served)
    fault.heal(ground)
    ended = time.monotonic()
    after, left = _settle(ground, fault, before)
    settled = time.monotonic() - ended if not left else None
    _hear_from_clients(ground, mark)
    meanwhile = ground.observer.since(mark)
    harms += [*find_harm(before, after, meanwhile), *left]
    fault.clear(ground)
    return Outcome(
        name=fault.name,
        expects_harm=isinstance(fault, CONTROL),
        harms=harms,
        answered=sum(got.answered for got in meanwhile.requests.values()),
        failed=sum(got.failed for got in meanwhile.requests.values()),
        ks=_ks(meanwhile),
        settled_seconds=settled,
        told=told,
        operator_starts=ground.operator.starts - starts,
        tracebacks=ground.operator.tracebacks() - tracebacks,
        seconds=time.monotonic() - began,
    )


def _ks(meanwhile: Meanwhile) -> list[int]:
    return sorted({k for steps in meanwhile.steps.values() for k, count in steps.items() if count > 0})


def _settle(ground: Ground, fault: Fault, before: Sight) -> tuple[Sight, list[Harm]]:
    """Wait until the state is back: the last sight, and what is not back by then."""
    deadline = time.monotonic() + SETTLE_SECONDS
    last = ground.observer.observed_at(AUTO) if fault.fresh_figures else ""
    while True:
        sight = ground.observer.look(ground.foreign())
        left = unsettled(before, sight)
        if not ground.operator.ready():
            left.append(Harm(Check.STATE, "the operator is not ready"))
        if fault.fresh_figures and not _new_and_true(last, ground.observer.observed_at(AUTO)):
            left.append(Harm(Check.STATE, f"{AUTO}: no figures of after the fault"))
        if not left or isinstance(fault, CONTROL) or time.monotonic() > deadline:
            return sight, left
        time.sleep(1.0)


def _new_and_true(last: str, now: str) -> bool:
    """Are figures of `now` newer than those of `last`, and of no time that is still to come?"""
    future = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60.0))
    return now < future and (now > last or last > future)


def _hear_from_clients(ground: Ground, mark: Mark) -> None:
    """Wait until every object has answered requests since the mark; where one does not, the judge says so."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        got = ground.observer.requests(mark.requests)
        if all(name in got and got[name].answered for name in ground.allowed):
            return
        time.sleep(0.5)
