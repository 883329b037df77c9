"""Faults of the operator's own process: killed, doubled, with a wrong clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.faults.fault import Fault
from chaos.ground import Ground, manifest
from chaos.operators import Operator
from demo.scene import NAMESPACE, until
from speculative_operator.domain import names

LATEST_SECONDS = 6.0
"""A kill that waits for a request which never comes is done by then."""
PASSING = "fault-passing"
DAY = 86400.0


def _create_passing(ground: Ground) -> None:
    ground.objects.apply(manifest(PASSING, replicas=0))


def _delete_passing(ground: Ground) -> None:
    ground.objects.delete(names.PLURAL, PASSING, NAMESPACE)


WORK: tuple[Callable[[Ground], None], ...] = (
    Ground.edit_cost, Ground.lose_policy, Ground.lose_table, Ground.edit_deployment, _create_passing, _delete_passing,
)  # fmt: skip
"""What gives the operator something to do, so that it is killed in the middle of it."""


class Kill:
    """Kills the operator at its n-th request: before the API server gets it, or before the operator gets the answer."""

    def __init__(self, operator: Operator, number: int, *, answered: bool, writes: bool) -> None:
        self._operator, self._left, self._answered, self._writes = operator, number, answered, writes
        self.done = False

    def __call__(self, method: str, answered: bool) -> None:
        """Told by the proxy."""
        if self.done or answered != self._answered or (self._writes and method == "GET"):
            return
        self._left -= 1
        if self._left <= 0:
            self.done = True
            self._operator.kill()


class Kills(Fault):
    name = "operator killed"
    does = (
        "SIGKILL, many times, at a request or a moment drawn by chance, while an edit, a lost child, a new or a deleted"
        " object gives the operator work."
    )
    remedy = "`kubectl get pods` shows the restarts; what was begun is finished after the next start."
    seconds = 2.0

    def inject(self, ground: Ground) -> None:
        rng, proxy, operator = ground.rng, ground.api_proxy, ground.operator
        for _ in range(ground.kills):
            starts = operator.starts
            rng.choice(WORK)(ground)
            if rng.random() < 0.7:
                writes = rng.random() < 0.6
                number = rng.randint(1, 6 if writes else 30)
                kill = Kill(operator, number, answered=rng.random() < 0.5, writes=writes)
                proxy.listener = kill
                deadline = time.monotonic() + LATEST_SECONDS
                while not kill.done and time.monotonic() < deadline:
                    time.sleep(0.05)
                proxy.listener = None
                if not kill.done:
                    operator.kill()
            else:
                time.sleep(rng.uniform(0.0, 3.0))
                operator.kill()
            until("the operator was started again", lambda starts=starts: operator.starts > starts, 120.0, 0.05)  # type: ignore[misc]  # a default binds the loop's value

    def heal(self, ground: Ground) -> None:
        ground.api_proxy.listener = None
        ground.remove(PASSING)


class TwoOperators(Fault):
    name = "two operators, one Lease"
    does = "A second operator is started; the first, which leads, is killed until the other leads."
    remedy = "One waits while the other leads: `kubectl get lease -n speculative-system` names the leader."
    seconds = 6.0

    def inject(self, ground: Ground) -> None:
        self._second = ground.second_operator()
        self._second.start()
        until("the second operator is ready", self._second.ready, 180.0)
        deadline = time.monotonic() + 120.0
        while ground.lease_holder() != self._second.identity and time.monotonic() < deadline:
            ground.operator.kill()
            time.sleep(0.5)
        ground.edit_cost()
        ground.lose_policy()

    def heal(self, ground: Ground) -> None:
        self._second.stop()


class TwoLeaders(Fault):
    name = "two operators at once"
    does = "A second operator acts beside the first without a Lease, as after a mistaken installation."
    remedy = "Both write the same; events come twice. Remove one; never switch leader election off."

    def inject(self, ground: Ground) -> None:
        self._second = ground.second_operator(SPECULATIVE_LEADER_ELECTION="false")
        self._second.start()
        until("the second operator is ready", self._second.ready, 180.0)
        for work in (Ground.edit_cost, Ground.lose_policy, Ground.lose_table, Ground.edit_deployment):
            work(ground)
            time.sleep(1.0)

    def heal(self, ground: Ground) -> None:
        self._second.stop()


class ClockForth(Fault):
    name = "clock set forth and back"
    does = "The operator's clock jumps a day ahead, and back afterwards."
    remedy = "Prometheus has no samples of that time, so nothing is tuned. Set the node's clock right."
    fresh_figures = True
    offset = DAY

    def inject(self, ground: Ground) -> None:
        ground.set_clock(self.offset)

    def heal(self, ground: Ground) -> None:
        ground.set_clock(0.0)


class ClockBack(ClockForth):
    name = "clock set back and forth"
    does = "The operator's clock jumps a day back, and ahead afterwards."
    remedy = "The same."
    offset = -DAY
