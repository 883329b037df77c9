"""Constraints between the fields of `rollout`, as CEL. Used by `v1alpha1`; `rules` lists them with the others."""

from __future__ import annotations

from speculative_operator.api.wire import Rule

ROLLOUT_RULES = (
    Rule(
        "window-of-interrupt",
        "!has(self.window) || (has(self.tuning) && self.tuning == 'Interrupt')",
        'window is "{self.window}" but tuning is not Interrupt: set tuning: Interrupt, or remove window, which '
        "has no effect without it",
        "window",
        "FieldValueForbidden",
    ),
)
