"""How many tokens to draft, and when not to: evidence in, a table and the reason for it out.

Called by reconcile at each reconcile and by everything that judges or replays decisions. Pure: no I/O, no clock, no
randomness. docs/tuning.md says what it does, docs/tuning-mathematics.md how.
"""

from speculative_operator.tuner.decide import decide, first_trials
from speculative_operator.tuner.judge import initial_table, initial_trials
from speculative_operator.tuner.memory import Memory

__all__ = ["Memory", "decide", "first_trials", "initial_table", "initial_trials"]
