"""The last check of a decision before its table becomes active.

Called by reconcile (before it writes) and by `replay.session` (simulator, `speculative tune` and `replay`).
"""

from __future__ import annotations

from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.tuner.allowed import fit


def lawful(decision: Decision, observation: Observation, policy: Policy) -> bool:
    """True when `decision` is valid, changes the table, rests on windows, and names a table that the engine can run.

    `METRICS_LOST` needs no windows: in a long outage K only falls, on earlier evidence."""
    seen = observation.gap is None and bool(observation.windows)
    return (
        decision.valid
        and decision.changed
        and (seen or decision.reason is Reason.METRICS_LOST)
        and fit(decision.table, policy) == decision.table
        and (policy.knobs.actuator is not Actuator.RESTART or len(decision.table.ks) == 1)
    )
