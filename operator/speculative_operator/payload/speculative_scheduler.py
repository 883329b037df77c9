"""Live K for a stock vLLM: a scheduler that re-reads its table of K by batch size from a mounted file.

Mounted into the serving container and named by `--scheduler-cls speculative_scheduler.scheduler`. It needs nothing but
the standard library (Python 3.9 and newer) and vLLM, which it imports late. It never fails the engine: whatever it does
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
import threading
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


class _HotTable:
    """Mixin before one of vLLM's schedulers: keeps `dynamic_sd_lookup` as the table file says, and counts steps.

    A table comes into force in one assignment, which vLLM reads once a step: no step sees half a table. Every method
    that vLLM calls gives what vLLM's own gives, whatever happens in ours.
    """

    _speculative_table: Any = None
    _speculative_state: Any = None
    _speculative_meter: Any = None
    _speculative_blocks: Any = None
    _speculative_latch: Any = None
    _speculative_chosen_by: Any = None
    """The table that `_speculative_blocks` has been given."""
    _speculative_decoding = 0
    """Requests that decode in the step scheduled last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _attempt(self, "Table", self._speculative_start)
        if self._speculative_blocks is not None and _off is not None:
            self._speculative_latch = _attempt(self, "Off", _off.from_environment)
        _attempt(self, "Counting", self._speculative_count)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, whatever its arguments in this release, after a look at the table file."""
        if self._speculative_table is not None:
            _attempt(self, "Table", self._speculative_poll)
        meter = self._speculative_meter
        if meter is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes after the mixin
        _attempt(self, "Counting", meter.scheduling)
        plan = super().schedule(*args, **kwargs)  # type: ignore[misc]
        _attempt(self, "Counting", meter.scheduled, plan, self._speculative_decoding)
        return plan

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; a step ends with it, so that no idle time is counted."""
        if self._speculative_latch is not None:
            _attempt(self, "Off", self._speculative_told, scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output, *args, **kwargs)  # type: ignore[misc]
        meter, blocks, step = self._speculative_meter, self._speculative_blocks, None
        if meter is not None:
            busy = bool(self.requests)  # type: ignore[attr-defined]  # of vLLM's scheduler
            step = _attempt(self, "Counting", meter.finished, scheduler_output, outputs, busy)
        if blocks is not None:
            _attempt(self, "Blocks", self._speculative_counted, blocks, step)
        return outputs

    def _update_after_schedule(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, the first that reads K of the next drafts from the plan: it is chosen before."""
        if self._speculative_blocks is not None:
            _attempt(self, "Blocks", self._speculative_choose, self._speculative_blocks, scheduler_output)
        if self._speculative_latch is not None:
            _attempt(self, "Off", self._speculative_rest, scheduler_output)
        return super()._update_after_schedule(scheduler_output, *args, **kwargs)  # type: ignore[misc]

    def _speculative_start(self) -> None:
        """The table file is looked at from now on."""
        self._speculative_looking = threading.Lock()
        self._speculative_state = _state()
        self._speculative_table = _table_of(self, self._speculative_state)
        self._speculative_look()
        if self._speculative_table is not None and _blocks is not None and hasattr(super(), "_update_after_schedule"):
            self._speculative_blocks = _blocks.Blocks()

    def _speculative_count(self) -> None:
        """Steps are counted from now on, and served."""
        state, config = self._speculative_state, self.vllm_config  # type: ignore[attr-defined]  # of vLLM's scheduler
        if state is None:
            return
        table = self._speculative_table
        prepared = table.allowed if table is not None else {0, self.num_spec_tokens}  # type: ignore[attr-defined]
        varied = config.speculative_config is not None and config.speculative_config.method in VARIED_METHODS
        state.scheduler = "async" if config.scheduler_config.async_scheduling else "sync"
        state.meter = self._speculative_meter = _telemetry.Meter(prepared, varied)
        if self._speculative_blocks is not None:
            state.comparisons = self._speculative_blocks.comparisons
            state.latch = self._speculative_latch
        state.look = lambda: _attempt(self, "Table", self._speculative_look)
        _serve(state)

    def _speculative_choose(self, blocks: Any, plan: Any) -> None:
        """K by the table in force. Tables arrive in any thread; here they reach `blocks` in the engine's."""
        table = self._speculative_table and self._speculative_table.table
        if table is None or not plan.num_scheduled_tokens:
            return
        if table is not self._speculative_chosen_by:
            blocks.put_in_force(table.rows, table.tries, table.steps)
            self._speculative_chosen_by = table
        self._speculative_decoding = _blocks.decoding(plan, self.requests)  # type: ignore[attr-defined]
        plan.num_spec_tokens_to_schedule = blocks.k_for(self._speculative_decoding)

    def _speculative_counted(self, blocks: Any, step: Any) -> None:
        """A step is over: what the meter counted of it, or None."""
        if step is not None:
            blocks.count(*step, self._speculative_latch is not None and self._speculative_latch.behind)
        if not self.requests:  # type: ignore[attr-defined]
            blocks.idle()

    def _speculative_rest(self, plan: Any) -> None:
        """Tells the workers where K = 0 has lasted."""
        blocks, latch = self._speculative_blocks, self._speculative_latch
        if blocks is None:
            raise RuntimeError("K is no longer chosen here")
        scheduled, requests = plan.num_scheduled_tokens, self.requests  # type: ignore[attr-defined]
        if scheduled:
            latch.step(plan.num_spec_tokens_to_schedule, blocks.k_in_force, scheduled, requests)
            latch.mark(plan, requests)
        blocks.resting = latch.lasted

    def _speculative_told(self, plan: Any, output: Any) -> None:
        """What the first worker did of what it was told."""
        latch, found = self._speculative_latch, _off.told(output)
        latch.count_drafts(plan, output)
        if found is None and getattr(plan, "speculative_off", False):
            raise RuntimeError("no worker says that it left the speculator out: does the V1 runner serve?")
        if found is None:
            return
        latch.rested, refused, missing, latch.behind = found
        latch.hear(plan, missing)
        if refused:
            raise RuntimeError(refused)

    def _speculative_look(self) -> None:
        """Puts a new table in force. Who comes second while another thread looks goes on without: the one that has
        looked is the one that assigns, so that an older table never takes the place of a newer one."""
        table = self._speculative_table
        if table is None or not self._speculative_looking.acquire(blocking=False):
            return
        try:
            found = table.poll()
            if found is not None:
                self.dynamic_sd_lookup = found.dense
                if self._speculative_state is not None:
                    self._speculative_state.table = (found.version, table.since)
        finally:
            self._speculative_looking.release()

    def _speculative_poll(self) -> None:
        """A look where one is due."""
        if self._speculative_table.due():
            self._speculative_look()


_PARTS = {
    "Table": ("_speculative_table", "K is not changed while serving: unexpected %r"),
    "Counting": ("_speculative_meter", "steps are no longer counted: %r"),
    "Off": ("_speculative_latch", "the speculator is never left out: %r"),
    "Blocks": ("_speculative_blocks", "nothing is tried, and K is by scheduled requests: %r"),
}


def _attempt(hot: Any, part: str, act: Any, *given: Any) -> Any:
    """What `act` gives; None where it fails, which ends `part` for good."""
    try:
        return act(*given)
    except Exception as error:
        _give_up(hot, part, error)
        return None


def _give_up(hot: Any, part: str, error: Exception) -> None:
    """Turns a part off for good, with one warning and its reason for whoever scrapes. Never raises."""
    with suppress(Exception):
        name, why = _PARTS[part]
        setattr(hot, name, None)
        _log.warning("speculative: " + why, error)
        if part == "Off" and hot._speculative_blocks is not None:
            hot._speculative_blocks.resting = False
        state = hot._speculative_state
        if state is not None:
            state.off[part] = repr(error)[:200]
            if part == "Table":
                state.live, state.reason = False, "Error"
            if part == "Counting":
                state.meter = None
            if part == "Off":
                state.latch = None


def _table_of(engine_scheduler: Any, state: Any) -> Any:
    """The table file for a scheduler that was started with a schedule of the known form; else None and a warning."""
    lookup = getattr(engine_scheduler, "dynamic_sd_lookup", None)
    path = os.environ.get(TABLE_VARIABLE)
    if lookup is None:
        why = "the engine runs without a schedule (none given at start, or data parallelism dropped it)"
        _inert(state, "NoSchedule", why)
    elif not isinstance(lookup, list) or len(lookup) < 2 or not all(type(k) is int for k in lookup):
        _inert(state, "UnknownSchedule", "this engine keeps its schedule in a form that is not known here")
    elif not path:
        _inert(state, "NoTableFile", f"{TABLE_VARIABLE} is not set")
    elif _tables is None:
        _inert(state, "Error", "speculative_table cannot be used")
    else:
        table = _tables.TableFile(path, lookup[1:], len(lookup) - 1)
        if state is not None:
            state.live = True
        return table
    return None


def _inert(state: Any, reason: str, why: str) -> None:
    """`state`, where there is one, tells the reason to whoever scrapes."""
    if state is not None:
        state.live, state.reason = False, reason
    _log.warning("speculative: K is not changed while serving: %s", why)


def _state() -> Any:
    """What is told to whoever scrapes; None where nothing can be counted."""
    version = _engine_version()
    return _telemetry.State(".".join(map(str, version)), version[:2] in _hooks.PROVEN) if _telemetry else None


def _serve(state: Any) -> None:
    if state is not None and _port is not None:
        _port.serve(lambda: _telemetry.scraped(state))


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """What `--scheduler-cls` names: vLLM calls it as it would call a scheduler class.

    Gives vLLM's own scheduler for the configuration (the asynchronous one where that is on: the other would cost a
    large part of the speed), with the table file mixed in where this vLLM has what that rests on.
    """
    own = _own_class((*args, *kwargs.values()))
    try:
        reason, why = _hindrance(_engine_version())
        made = own if reason else _hot(own)
        if reason:
            _stand_aside(reason, why)
    except Exception as error:
        made = own
        with suppress(Exception):
            _log.warning("speculative: K is not changed while serving: unexpected %r", error)
    return made(*args, **kwargs)


def _hindrance(version: tuple[int, ...]) -> tuple[str, str]:
    """Why nothing can be changed in this vLLM: a reason for metrics and a sentence; empty where it has all hooks."""
    if not version or version[:2] < _hooks.PROVEN[0]:
        return "EngineVersion", f"vLLM {'.'.join(map(str, version)) or 'of unknown version'} takes no schedule of K"
    missing = _hooks.missing(_hooks.SCHEDULER)
    if not missing:
        try:
            _hooks.rehearse(_telemetry and _telemetry.Meter({0, 1}, False))
        except Exception as error:
            missing = f"a dry plan failed: {error!r}"
    if not missing and version[:2] not in _hooks.PROVEN:
        _log.warning("speculative: not proven with vLLM %s, which has all that is needed", ".".join(map(str, version)))
    return ("MissingHook", missing) if missing else ("", "")


def _stand_aside(reason: str, why: str) -> None:
    """Nothing of vLLM is touched; metrics say so."""
    state = _state()
    if state is not None and reason == "MissingHook":
        state.off["Hooks"] = why[:200]
    _inert(state, reason, why)
    _serve(state)


_classes: dict[type, type] = {}


def _hot(base: type) -> type:
    if base not in _classes:
        _classes[base] = type(f"Speculative{base.__name__}", (_HotTable, base), {"__module__": __name__})
    return _classes[base]


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
    try:
        version = str(importlib.import_module("vllm").__version__)
    except Exception:
        return ()
    numbers: list[int] = []
    for part in version.partition("+")[0].split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
