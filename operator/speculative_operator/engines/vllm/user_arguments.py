"""Which of vLLM's flags the operator owns. Used by `checks` and `graphs`."""

from __future__ import annotations

from speculative_operator.domain.vllm import ALIASES, ALWAYS_SET, FIELDS_OF_FLAGS
from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags

FLAGS = Flags(
    owned={
        **{flag: ALWAYS if field == ALWAYS_SET else f"set {field} instead" for flag, field in FIELDS_OF_FLAGS.items()},
        "--scheduler-cls": "K is changed through it",
        "--worker-extension-cls": "the speculator is left out through it",
        **dict.fromkeys(("--spec-method", "--spec-model", "--spec-tokens"), SPECULATION),
    },
    aliases=ALIASES,
    blinding={"--disable-log-stats": "turns off the metrics"},
    abbreviates=True,
    flexible=True,
)
