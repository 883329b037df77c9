"""`--scheduler-cls`: resolves and runs the named scheduler as vLLM would, the payload of real pods above all.

The payload subclasses vLLM's scheduler. Here it subclasses `StandIn`, whose steps are those of the emulator's core:
what reads the table, counts steps and serves them here is the file that does so in a real pod. Called by `server`.
vLLM resolves the name from PYTHONPATH and dies when it cannot; so does this.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from speculative_lab.emulator import VLLM_VERSION
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import EngineCore, StepResult
from speculative_lab.emulator.errors import LateError

_SYNCHRONOUS = frozenset({"ngram", "suffix", "medusa", "custom_class"})
"""Methods under which vLLM 0.32 turns asynchronous scheduling off."""
_COMPLETE = SimpleNamespace(num_computed_tokens=0, num_tokens=1, num_output_placeholders=0, output_token_ids=())
_WITHIN_PROMPT = SimpleNamespace(num_computed_tokens=0, num_tokens=2, num_output_placeholders=0, output_token_ids=())
"""Requests with one token scheduled, which is or is not their last known one."""

PAYLOAD = "speculative_scheduler"
"""Name of the payload's module."""

log = logging.getLogger(__name__)


class StandIn:
    """As much of vLLM's scheduler as the payload looks at. Its steps are run by whoever sets `core`."""

    def __init__(self, *, vllm_config: Any, **_: Any) -> None:
        self.vllm_config = vllm_config
        self.num_spec_tokens: int = vllm_config.num_spec_tokens
        self.dynamic_sd_lookup: list[int] | None = vllm_config.lookup
        self.skips: bool = vllm_config.skips
        """Whether workers skip the drafter where they are told so."""
        self.requests: Collection[Any] = ()
        """As many as are running or waiting; while a step is scheduled, those that it schedules."""
        self.core: EngineCore | None = None
        self.now = 0.0
        self.result = StepResult()

    def schedule(self) -> SchedulerOutput:
        """Run the step; the plan tells what it had."""
        core = self.core
        assert core is not None
        if self.dynamic_sd_lookup is not None:
            core.lengths = self._next_k
        self.result = core.step(self.now)
        return plan_of(self.result)

    def _next_k(self, scheduled: int, decoding: int) -> int:
        """See `DraftLengths`: vLLM looks K up, and may have it changed before it makes use of it."""
        assert self.core is not None
        assert self.dynamic_sd_lookup is not None
        complete = self.core.under_way.complete
        self.requests = dict(enumerate([_COMPLETE] * complete + [_WITHIN_PROMPT] * (scheduled - complete)))
        plan = SchedulerOutput(
            num_scheduled_tokens=dict.fromkeys(range(scheduled), 1),
            total_num_scheduled_tokens=scheduled + (complete < scheduled),
            scheduled_spec_decode_tokens={},
            num_spec_tokens_to_schedule=self.dynamic_sd_lookup[scheduled],
            scheduled_new_reqs=(),
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=()),
        )
        self._update_after_schedule(plan)
        # what the worker's part would do of it in a real engine
        self.core.off = self.skips and getattr(plan, "speculative_off", False)
        return int(plan.num_spec_tokens_to_schedule)

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """The first that reads K from the plan. Here the core does."""

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> dict[int, Any]:
        """What the step gave, for the one client there is."""
        return {0: outputs_of(self.result, self.num_spec_tokens)}


class _AsyncStandIn(StandIn):
    """The same under the name of vLLM's other scheduler."""


def plan_of(result: StepResult) -> SchedulerOutput:
    """The plan of a step: requests, their tokens, the drafts verified, and K of the drafts made.

    Collections have the right length, not the right contents.
    """
    drafts = {row: range(length) for row, length in enumerate(result.offered.tolist()) if length}
    return SchedulerOutput(
        num_scheduled_tokens=range(result.scheduled),
        total_num_scheduled_tokens=result.decoded + result.draft_tokens + result.prefill_tokens,
        scheduled_spec_decode_tokens=drafts,
        num_spec_tokens_to_schedule=result.k,
        scheduled_cached_reqs=SimpleNamespace(num_output_tokens=[1] * result.decoded),
    )


def outputs_of(result: StepResult, max_k: int) -> SimpleNamespace:
    """Tokens of a step, and drafts and accepted ones by position where there were drafts."""
    stats = None
    if len(result.accepted):
        stats = SimpleNamespace(
            num_draft_tokens_per_pos=_beyond(result.offered, max_k),
            num_accepted_tokens_per_pos=_beyond(result.accepted, max_k),
        )
    output = SimpleNamespace(new_token_ids=range(result.generated_tokens))
    return SimpleNamespace(outputs=[output], scheduler_stats=SimpleNamespace(spec_decoding_stats=stats))


def _beyond(lengths: Any, max_k: int) -> list[int]:
    """How many of `lengths` exceed 0, 1, ... max_k - 1."""
    counts = np.bincount(lengths, minlength=max_k + 1)
    found: list[int] = np.cumsum(counts[::-1])[::-1][1:].tolist()
    return found


class HotStepper:
    """Steps of a core, run through a scheduler of the payload's making."""

    def __init__(self, core: EngineCore, scheduler: StandIn) -> None:
        scheduler.core = core
        self._core, self._scheduler = core, scheduler
        self._plan: SchedulerOutput | None = None
        self._time = 0.0
        state = getattr(scheduler, "_speculative_state", None)
        if state is not None and state.meter is not None:
            # its steps take engine time, as all other metrics tell it: not what this machine needs for them
            state.meter.clock = lambda: self._time

    def step(self, now: float) -> StepResult:
        """One step that starts at engine time `now`."""
        self._scheduler.now = self._time = now
        self._plan = self._scheduler.schedule()
        return self._scheduler.result

    def finished(self, result: StepResult) -> None:
        """The step's time is over: its outputs exist."""
        core, self._time = self._core, result.end
        self._scheduler.requests = range(core.running + len(core.waiting))
        if self._plan is not None:
            told = (core.rested, "", core.behind, result.behind)
            empty = SimpleNamespace(sampled_token_ids=[], req_id_to_index={}, speculative_off=told)
            self._scheduler.update_from_output(self._plan, empty)


def hot_stepper(config: EngineConfig, core: EngineCore) -> HotStepper | None:
    """The stepper that --scheduler-cls names; None without the flag, or for a scheduler that is not the payload.

    Raises LateError for a name that does not import.
    """
    name = config.scheduler_cls
    if not name:
        return None
    sys.modules.update({module: content for module, content in stand_ins().items() if module not in sys.modules})
    module_name, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # importing runs foreign code: whatever it raises ends the start
        raise LateError(f"--scheduler-cls {name}: {type(error).__name__}: {error}") from error
    log.warning(
        "Using custom scheduler class %s. This scheduler interface is not public and compatibility may not be"
        " maintained.",
        name,
    )
    if module_name != PAYLOAD:
        log.warning("%s is not the payload: the stock scheduler runs in its place", module_name)
        return None
    scheduler: StandIn = found(vllm_config=_configuration(config))
    return HotStepper(core, scheduler)


def _configuration(config: EngineConfig) -> SimpleNamespace:
    """vLLM's configuration, as far as the payload and `StandIn` ask for it."""
    speculative, lookup = config.speculative, config.lookup()
    method = speculative.method if speculative else ""
    drafts = SimpleNamespace(method=method) if speculative else None
    asynchronous = config.async_scheduling and method not in _SYNCHRONOUS
    return SimpleNamespace(
        lookup=lookup,
        num_spec_tokens=config.max_k,
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous, max_num_seqs=config.max_num_seqs),
        speculative_config=drafts,
        skips=config.drafting is not None and config.drafting.skipped,
    )


class SchedulerOutput(SimpleNamespace):
    """vLLM's class of that name: what a plan is written on, here and in other processes."""

    num_scheduled_tokens: Mapping[Any, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: Mapping[Any, Sequence[int]]
    scheduled_new_reqs: Sequence[Any]
    scheduled_cached_reqs: Any
    num_spec_tokens_to_schedule: int

    @classmethod
    def make_empty(cls) -> SchedulerOutput:
        """A step without requests."""
        return cls(
            num_scheduled_tokens={},
            total_num_scheduled_tokens=0,
            scheduled_spec_decode_tokens={},
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(num_output_tokens=[], resumed_req_ids=()),
            num_spec_tokens_to_schedule=0,
        )


_SCHED = "vllm.v1.core.sched"
_CLASSES: Mapping[str, Mapping[str, type]] = {
    f"{_SCHED}.scheduler": {"Scheduler": StandIn},
    f"{_SCHED}.async_scheduler": {"AsyncScheduler": _AsyncStandIn},
    f"{_SCHED}.output": {"SchedulerOutput": SchedulerOutput},
}
_FIELDS = {
    f"{_SCHED}.output": {
        "NewRequestData": "req_id num_computed_tokens", "CachedRequestData": "num_output_tokens",
    },
    "vllm.v1.request": {"Request": "num_computed_tokens num_tokens num_output_placeholders"},
    "vllm.v1.engine": {"EngineCoreOutput": "new_token_ids", "EngineCoreOutputs": "outputs scheduler_stats"},
    "vllm.v1.metrics.stats": {"SchedulerStats": "spec_decoding_stats"},
    "vllm.v1.spec_decode.metrics": {"SpecDecodingStats": "num_draft_tokens_per_pos num_accepted_tokens_per_pos"},
    "vllm.v1.outputs": {"ModelRunnerOutput": "req_ids sampled_token_ids req_id_to_index"},
}  # fmt: skip
"""Module -> class -> fields that vLLM 0.32 has there, as far as the payload looks for them at its start."""


def stand_ins() -> dict[str, ModuleType]:
    """Modules under vLLM's names that hold its version, `StandIn` for its schedulers, and names of what passes through
    them."""
    modules: dict[str, ModuleType] = {}
    for full in (*_CLASSES, *_FIELDS):
        parts = full.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            modules.setdefault(name, ModuleType(name))
        modules[full].__dict__.update(_CLASSES.get(full, {}))
        for name, fields in _FIELDS.get(full, {}).items():
            modules[full].__dict__[name] = type(name, (), {"__annotations__": dict.fromkeys(fields.split(), Any)})
    modules["vllm"].__dict__["__version__"] = VLLM_VERSION
    return modules
