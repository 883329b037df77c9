"""Live K for a stock vLLM: a scheduler that re-reads its table of K by batch size from a mounted file.

Mounted into the serving container and named by `--scheduler-cls speculative_scheduler.scheduler`. It needs nothing but
the standard library (Python 3.10 or newer) and vLLM, which it imports late. It never fails the engine: whatever it does
not know or understand leaves the engine's own behaviour and table as they are, with one warning, and each of its parts
that meets an error turns itself off. The file, `$SPECULATIVE_TABLE_FILE`, is that of `speculative_table`; with
`speculative_telemetry` each step is counted and served as metrics by `speculative_port`; `speculative_blocks` chooses K
by the requests that decode, and tries others where the file says so; `speculative_off` tells workers when no drafts
are wanted. `speculative_hooks` says whether this vLLM has what all of them rest on. All are imported with this file,
never later: a pod whose files are replaced while it runs must not mix those of two releases.
"""

from __future__ import annotations

import copy
import importlib
import logging
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

TABLE_VARIABLE = "SPECULATIVE_TABLE_FILE"
VARIED_METHODS = ("ngram", "suffix")
"""Methods whose requests may have fewer drafts than the table says, or none: K of their steps is the table's."""

# A child of vLLM's own logger: its lines appear in the engine's log, in its form.
_log = logging.getLogger("vllm.speculative_scheduler")


def _sibling(name: str) -> Any:
    """The module mounted beside this one; None and a warning without it."""
    try:
        return importlib.import_module(f"{__package__}.{name}" if __package__ else name)
    except Exception as error:
        _log.warning("speculative: %s cannot be used: %r", name, error)
        return None


_tables = _sibling("speculative_table")
_telemetry = _sibling("speculative_telemetry")
_port = _sibling("speculative_port")
_blocks = _sibling("speculative_blocks")
_off = _sibling("speculative_off")
_hooks = _sibling("speculative_hooks")


class State:
    """The parts of the payload, None what is not there or has ended, and what else is told to whoever scrapes.

    Every attribute is replaced in one store, for another thread reads them.
    """

    file: Any = None
    """Table file: while there is one, tables are re-read."""
    meter: Any = None
    blocks: Any = None
    latch: Any = None
    """Of `speculative_off`; None where steps are never off."""
    ended: tuple[tuple[str, str], ...] = ()
    """Parts that have turned themselves off (see `_PARTS`), and the errors that they met."""
    table: tuple[int, float] | None = None
    """Version in force and the unix time since when."""
    engine_version, proven, scheduler, reason = "", False, "none", ""
    """`reason`: why tables are not re-read."""
    look: Callable[[], object] = staticmethod(lambda: None)
    """Called before a text is made, so that a table is taken and acknowledged by an engine without requests too."""


class _HotTable:
    """Mixin before one of vLLM's schedulers: keeps `dynamic_sd_lookup` as the table file says, and counts steps.

    A table comes into force in one assignment, which vLLM reads once a step: no step sees half a table. Every method
    that vLLM calls gives what vLLM's own gives, whatever happens in ours.
    """

    _speculative_state = State()
    _speculative_looking = threading.Lock()
    """Held by the thread that looks at the table file."""
    _speculative_decoding = 0
    """Requests that decode in the step scheduled last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state = self._speculative_state = State()
        _attempt(state, "Table", self._speculative_start, state)
        if state.blocks is not None and _off is not None:
            state.latch = _attempt(state, "Off", _off.from_environment)
        if _telemetry is not None:
            _attempt(state, "Counting", self._speculative_count, state)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, whatever its arguments in this release, after a look at the table file."""
        state = self._speculative_state
        _attempt(state, "Table", self._speculative_look, state)
        if state.meter is not None:
            _attempt(state, "Counting", state.meter.scheduling)
        plan = super().schedule(*args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes after the mixin
        if state.meter is not None:
            _attempt(state, "Counting", state.meter.scheduled, plan, self._speculative_decoding)
        return plan

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; a step ends with it, so that no idle time is counted."""
        state, step = self._speculative_state, None
        if state.latch is not None:
            _attempt(state, "Off", state.latch.hear, scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output, *args, **kwargs)  # type: ignore[misc]
        if state.meter is not None:
            busy = bool(self.requests)  # type: ignore[attr-defined]  # of vLLM's scheduler
            step = _attempt(state, "Counting", state.meter.finished, scheduler_output, outputs, busy)
        if state.blocks is not None:
            _attempt(state, "Blocks", self._speculative_counted, state, step)
        return outputs

    def _update_after_schedule(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, the first that reads K of the next drafts from the plan: it is chosen before."""
        state = self._speculative_state
        if state.blocks is not None:
            _attempt(state, "Blocks", self._speculative_choose, state, scheduler_output)
        if state.latch is not None:
            _attempt(state, "Off", self._speculative_rest, state, scheduler_output)
        return super()._update_after_schedule(scheduler_output, *args, **kwargs)  # type: ignore[misc]

    def _speculative_start(self, state: State) -> None:
        """The table file is looked at from now on, where the engine was started with a schedule of the known form."""
        lookup: Any = getattr(self, "dynamic_sd_lookup", None)
        path = os.environ.get(TABLE_VARIABLE)
        known = isinstance(lookup, list) and len(lookup) > 1 and all(type(k) is int for k in lookup)
        absent = "the engine runs without a schedule (none given at start, or data parallelism dropped it)"
        hindrances = (
            (lookup is None, "NoSchedule", absent),
            (not known, "UnknownSchedule", "this engine keeps its schedule in a form that is not known here"),
            (not path, "NoTableFile", f"{TABLE_VARIABLE} is not set"),
        )
        for hinders, reason, why in hindrances:
            if hinders:
                _inert(state, reason, why)
                return
        state.file = _tables.TableFile(path, lookup[1:], len(lookup) - 1)
        self._speculative_look(state)
        if _blocks is not None and hasattr(super(), "_update_after_schedule"):
            state.blocks = _blocks.Blocks()

    def _speculative_count(self, state: State) -> None:
        """Steps are counted from now on, and served."""
        config = self.vllm_config  # type: ignore[attr-defined]  # of vLLM's scheduler
        prepared = state.file.allowed if state.file is not None else {0, self.num_spec_tokens}  # type: ignore[attr-defined]
        varied = config.speculative_config is not None and config.speculative_config.method in VARIED_METHODS
        state.scheduler = "async" if config.scheduler_config.async_scheduling else "sync"
        state.look = lambda: _attempt(state, "Table", self._speculative_look, state)
        state.meter = _telemetry.Meter(prepared, varied)
        _serve(state)

    def _speculative_choose(self, state: State, plan: Any) -> None:
        """K by the table in force. Tables arrive in any thread; here they reach the blocks in the engine's."""
        blocks, file = state.blocks, state.file
        table = file and file.table
        if table is None or not plan.num_scheduled_tokens:
            return
        if state.latch is None:
            blocks.resting = False
        if blocks.rows is not table.rows:
            blocks.put_in_force(table.rows, table.tries, table.steps)
        self._speculative_decoding = _blocks.decoding(plan, self.requests)  # type: ignore[attr-defined]
        plan.num_spec_tokens_to_schedule = blocks.k_for(self._speculative_decoding)

    def _speculative_counted(self, state: State, step: Any) -> None:
        """A step is over: what the meter counted of it, or None."""
        if step is not None:
            state.blocks.count(*step, state.latch is not None and state.latch.behind)
        if not self.requests:  # type: ignore[attr-defined]
            state.blocks.idle()

    def _speculative_rest(self, state: State, plan: Any) -> None:
        """Tells the workers where K = 0 has lasted."""
        latch, scheduled, requests = state.latch, plan.num_scheduled_tokens, self.requests  # type: ignore[attr-defined]
        if state.blocks is None:
            raise RuntimeError("K is no longer chosen here")
        if scheduled:
            latch.step(plan.num_spec_tokens_to_schedule, state.blocks.k_in_force, scheduled, requests)
            latch.mark(plan, requests)
        state.blocks.resting = latch.lasted

    def _speculative_look(self, state: State) -> None:
        """Puts a new table in force. Who comes second while another thread looks goes on without: the one that has
        looked is the one that assigns, so that an older table never takes the place of a newer one."""
        file = state.file
        if file is not None and self._speculative_looking.acquire(blocking=False):
            try:
                if (found := file.poll()) is not None:
                    self.dynamic_sd_lookup = found.dense
                    state.table = (found.version, found.since)
            finally:
                self._speculative_looking.release()


_PARTS = {
    "Table": ("file", "K is not changed while serving: unexpected %r"),
    "Counting": ("meter", "steps are no longer counted: %r"),
    "Off": ("latch", "the speculator is never left out: %r"),
    "Blocks": ("blocks", "nothing is tried, and K is by scheduled requests: %r"),
}
"""Part -> its attribute of `State`, and what is said when it ends."""


def _attempt(state: State, part: str, act: Any, *given: Any) -> Any:
    """What `act` gives; None where it fails, which ends `part` for good: with one warning, and its error for whoever
    scrapes. Never raises."""
    try:
        return act(*given)
    except Exception as error:
        with suppress(Exception):
            name, why = _PARTS[part]
            setattr(state, name, None)
            _log.warning("speculative: " + why, error)
            state.ended = (*state.ended, (part, repr(error)[:200]))
            if part == "Table":
                state.reason = "Error"
        return None


def _inert(state: State, reason: str, why: str) -> None:
    """`state` tells the reason to whoever scrapes, the log tells it in words."""
    state.reason = reason
    _log.warning("speculative: K is not changed while serving: %s", why)


def _serve(state: State) -> None:
    """Tells `state` and the engine's version to whoever scrapes."""
    version = _engine_version()
    state.engine_version, state.proven = ".".join(map(str, version)), version[:2] in _hooks.PROVEN
    if _port is not None and _telemetry is not None:
        _port.serve(lambda: _telemetry.exposition(state))


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """What `--scheduler-cls` names: vLLM calls it as it would call a scheduler class.

    Gives vLLM's own scheduler for the configuration (the asynchronous one where that is on: the other would cost a
    large part of the speed), with the table file mixed in where this vLLM has what that rests on.
    """
    own = made = _own_class((*args, *kwargs.values()))
    try:
        reason, why = _hindrance(_engine_version())
        if reason:
            state = State()
            state.ended = (("Hooks", why[:200]),) if reason == "MissingHook" else ()
            _inert(state, reason, why)
            _serve(state)
        else:
            made = _hot(own)
    except Exception as error:
        with suppress(Exception):
            _log.warning("speculative: K is not changed while serving: unexpected %r", error)
    return made(*args, **kwargs)


def _hindrance(version: tuple[int, ...]) -> tuple[str, str]:
    """Why nothing can be changed in this vLLM: a reason for metrics and a sentence; empty where it has all hooks."""
    number = ".".join(map(str, version))
    if not version or version[:2] < _hooks.PROVEN[0]:
        return "EngineVersion", f"vLLM {number or 'of unknown version'} takes no schedule of K"
    missing = _hooks.missing(_hooks.SCHEDULER)
    if not missing:
        try:
            _hooks.rehearse(_telemetry and _telemetry.Meter({0, 1}, False))
        except Exception as error:
            missing = f"a dry plan failed: {error!r}"
    if not missing and version[:2] not in _hooks.PROVEN:
        _log.warning("speculative: not proven with vLLM %s, which has all that is needed", number)
    return ("MissingHook", missing) if missing else ("", "")


def _hot(base: type) -> type:
    return type(f"Speculative{base.__name__}", (_HotTable, base), {"__module__": __name__})


def _own_class(given: tuple[Any, ...]) -> Any:
    """The scheduler class that vLLM would take by itself: asked of vLLM's configuration, from which our name is taken
    out; where that cannot be asked, by the places where vLLM 0.32 has them."""
    config = next((one.scheduler_config for one in given if hasattr(one, "scheduler_config")), None)
    with suppress(Exception):
        plain: Any = copy.copy(config)
        plain.scheduler_cls = None
        found = plain.get_scheduler_cls()
        if isinstance(found, type):
            return found
    if getattr(config, "async_scheduling", False):
        return importlib.import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler
    return importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler


def _engine_version() -> tuple[int, ...]:
    """(0, 32, 0) of "0.32.0+cpu"; () when it cannot be told."""
    with suppress(Exception):
        found: Any = re.match(r"\d+(\.\d+){0,2}", str(importlib.import_module("vllm").__version__))
        return tuple(map(int, found[0].split(".")))
    return ()
