"""Live K for a stock vLLM: a scheduler that re-reads its table of K by batch size from a mounted file.

Mounted into the serving container and named by `--scheduler-cls speculative_scheduler.scheduler`. It needs nothing but
the standard library (Python 3.9 and newer) and vLLM, which it imports late. It never fails the engine: whatever it does
not know or understand leaves the engine's own behaviour and table as they are, with one warning. With
`speculative_telemetry` beside it each step is counted and served as metrics; it works without.

The file, `$SPECULATIVE_TABLE_FILE`, holds `{"version": 3, "rows": [[1, 16, 4], [17, 256, 1]]}`: rows are
[first, last, K] by number of scheduled requests, from 1 on without gap; the last row holds beyond its end. With
`"perRequest": true` in it, requests whose drafts keep being rejected are not verified (`speculative_requests`).
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

PROVEN = ((0, 32),)
"""vLLM release lines (major, minor) on which this file was proven. On others it is inert."""
TABLE_VARIABLE = "SPECULATIVE_TABLE_FILE"
POLL_SECONDS = 0.2
VARIED_METHODS = ("ngram", "suffix")
"""Methods whose requests may have fewer drafts than the table says, or none: K of their steps is the table's."""
LARGEST_FILE = 1 << 20

# A child of vLLM's own logger: its lines appear in the engine's log, in its form.
_log = logging.getLogger("vllm.speculative_scheduler")

Rows = list[tuple[int, int, int]]


class BadTableError(ValueError):
    """A table file that must not be used; the message says why."""


def parse(text: str, allowed: Iterable[int], max_batch: int) -> tuple[int, Rows, list[int]]:
    """Version, rows and the dense form of a table file: K by batch size, length `max_batch` + 1, index 0 unused.

    Stricter than the engine, which would clamp a K, truncate a float and fill a gap: here each is an error.
    Raises BadTableError.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTableError(f"is no JSON ({error})") from None
    version: Any = data.get("version") if isinstance(data, dict) else None
    rows: Any = data.get("rows") if isinstance(data, dict) else None
    if not _whole(version) or version < 0 or not isinstance(rows, list) or not rows:
        raise BadTableError('must be {"version": N, "rows": [[first, last, K], ...]}')
    checked = _rows(rows, frozenset(allowed))
    return version, checked, _dense(checked, max_batch)


def per_request(text: str) -> bool:
    """Whether a table file that `parse` takes asks for caps by request. Raises BadTableError."""
    asked = json.loads(text).get("perRequest", False)
    if not isinstance(asked, bool):
        raise BadTableError('"perRequest" must be true or false')
    return asked


def _rows(rows: list[Any], allowed: frozenset[int]) -> Rows:
    checked: Rows = []
    expected = 1
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not all(_whole(cell) for cell in row):
            raise BadTableError(f"row {row!r} must be three whole numbers [first, last, K]")
        first, last, k = row
        if first != expected or last < first:
            raise BadTableError(f"row {row!r} must start at {expected} and not end before it starts")
        if k not in allowed:
            raise BadTableError(f"row {row!r}: K {k} was not prepared at start; those are {sorted(allowed)}")
        checked.append((first, last, k))
        expected = last + 1
    return checked


def _dense(rows: Rows, max_batch: int) -> list[int]:
    dense = [0] * (max_batch + 1)
    for first, last, k in rows:
        for batch in range(first, min(last, max_batch) + 1):
            dense[batch] = k
    _, end, k = rows[-1]
    for batch in range(end + 1, max_batch + 1):
        dense[batch] = k
    return dense


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class TableFile:
    """A table file that is looked at now and then. The last good table stays; nothing is ever raised.

    `allowed` are the K prepared at start, `max_batch` the most requests that are scheduled at once. A mounted
    ConfigMap replaces a link, so it is the file behind the path whose time, inode and size tell of a change.
    """

    def __init__(
        self,
        path: str,
        allowed: Iterable[int],
        max_batch: int,
        clock: Callable[[], float] = time.monotonic,
        logger: logging.Logger = _log,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.version: int | None = None
        self.rows: Rows = []
        self.per_request = False
        """Whether the table in force asks for caps by request."""
        self.since = 0.0
        """Unix time since when `version` is in force."""
        self.allowed = frozenset(allowed)
        self._max_batch = max_batch
        self._clock = clock
        self._logger = logger
        self._wall = wall
        self._next = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._text: str | None = None
        self._warned = ""
        self._looking = threading.Lock()

    def poll(self) -> list[int] | None:
        """The dense table when a new one has come into force with this call, else None. Cheap: call it every step.

        May be called from any thread: who comes second while another one looks goes on without.
        """
        now = self._clock()
        if now < self._next or not self._looking.acquire(blocking=False):
            return None
        try:
            self._next = now + POLL_SECONDS
            return self._look()
        except BadTableError as error:
            self._warn(f"{self.path} {error}")
        except Exception as error:
            self._warn(f"{self.path} cannot be read: {error!r}")
        finally:
            self._looking.release()
        return None

    def _look(self) -> list[int] | None:
        found = os.stat(self.path)  # noqa: PTH116
        signature = (found.st_mtime_ns, found.st_ino, found.st_size)
        if signature == self._seen:
            return None
        with open(self.path, "rb") as file:  # noqa: PTH123
            raw = file.read(LARGEST_FILE + 1)
        # Only now: a file that could not be read is tried again.
        self._seen = signature
        if len(raw) > LARGEST_FILE:
            raise BadTableError(f"is larger than {LARGEST_FILE} bytes")
        text = raw.decode("utf-8", "replace")
        if text == self._text:
            self._warned = ""
            return None
        version, rows, dense = parse(text, self.allowed, self._max_batch)
        self._text, self._warned, self.per_request = text, "", per_request(text)
        self.version, self.rows, self.since = version, rows, self._wall()
        # the engine's log shows whole seconds; how fast a table arrives is worth more
        moment = datetime.fromtimestamp(self.since, timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017
        self._logger.info("speculative: table version %d in force since %s: %s", version, moment, show(rows))
        return dense

    def _warn(self, problem: str) -> None:
        """One line per problem, not one per look."""
        if problem != self._warned:
            self._warned = problem
            kept = "the table of the start" if self.version is None else f"table version {self.version}"
            self._logger.warning("speculative: %s; %s stays in force", problem, kept)


def show(rows: Rows) -> str:
    """`1-16:4 17-256:1`."""
    return " ".join(f"{first}-{last}:{k}" for first, last, k in rows)


class _HotTable:
    """Mixin before one of vLLM's schedulers: keeps `dynamic_sd_lookup` as the table file says, and counts steps.

    A table comes into force in one assignment, which vLLM reads once a step: no step sees half a table.
    """

    _speculative_table: TableFile | None = None
    _speculative_state: Any = None
    _speculative_meter: Any = None
    _speculative_caps: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        telemetry = _sibling("speculative_telemetry")
        try:
            self._speculative_state = _state(telemetry)
            self._speculative_table = _table_of(self, self._speculative_state)
            self._speculative_look()
        except Exception as error:
            self._speculative_table = None
            _inert(self._speculative_state, "Error", f"unexpected {error!r}")
        try:
            if telemetry is not None:
                self._speculative_count(telemetry)
        except Exception as error:
            self._speculative_uncounted(error)

    def _speculative_count(self, telemetry: Any) -> None:
        """Steps are counted from now on, and served."""
        state, config = self._speculative_state, self.vllm_config  # type: ignore[attr-defined]  # of vLLM's scheduler
        table = self._speculative_table
        prepared = table.allowed if table is not None else {0, self.num_spec_tokens}  # type: ignore[attr-defined]
        varied = config.speculative_config is not None and config.speculative_config.method in VARIED_METHODS
        state.scheduler = "async" if config.scheduler_config.async_scheduling else "sync"
        state.meter = self._speculative_meter = telemetry.Meter(prepared, varied)
        state.look = self._speculative_look
        telemetry.serve(state)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, whatever its arguments in this release, after a look at the table file."""
        if self._speculative_table is not None:
            self._speculative_look()
        meter = self._speculative_meter
        if meter is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes after the mixin
        meter.scheduling()
        plan = super().schedule(*args, **kwargs)  # type: ignore[misc]
        try:
            meter.scheduled(plan)
        except Exception as error:
            self._speculative_uncounted(error)
        return plan

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; a step ends with it, so that no idle time is counted."""
        caps, withheld = self._speculative_caps, ()
        if caps is not None:
            try:
                withheld = caps.withheld(scheduler_output, self.num_spec_tokens)  # type: ignore[attr-defined]
                caps.sampled(scheduler_output, model_runner_output, self.requests)  # type: ignore[attr-defined]
            except Exception as error:
                self._speculative_uncapped(error)
        outputs = super().update_from_output(scheduler_output, model_runner_output, *args, **kwargs)  # type: ignore[misc]
        meter = self._speculative_meter
        if meter is not None:
            try:
                meter.finished(scheduler_output, outputs, bool(self.requests), withheld)  # type: ignore[attr-defined]
            except Exception as error:
                self._speculative_uncounted(error)
        return outputs

    def update_draft_token_ids(self, draft_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, which the synchronous engine calls with the drafts of the next step; then caps have their turn."""
        given = super().update_draft_token_ids(draft_token_ids, *args, **kwargs)  # type: ignore[misc]
        caps = self._speculative_caps
        if caps is not None:
            try:
                caps.drafted(draft_token_ids.req_ids, self.requests)  # type: ignore[attr-defined]
            except Exception as error:
                self._speculative_uncapped(error)
        return given

    def _speculative_look(self) -> None:
        table = self._speculative_table
        dense = table.poll() if table is not None else None
        if table is not None and dense is not None:
            self.dynamic_sd_lookup = dense
            self._speculative_cap(table.per_request)
            if self._speculative_state is not None:
                self._speculative_state.table = (table.version, table.since)

    def _speculative_cap(self, asked: bool) -> None:
        """Caps by request come and go with the table; only where drafts are handed over between steps."""
        if not asked or self._speculative_caps is not None:
            self._speculative_caps = self._speculative_caps if asked else None
            return
        if self.vllm_config.scheduler_config.async_scheduling:  # type: ignore[attr-defined]
            _log.warning("speculative: no caps by request: they are not proven with asynchronous scheduling")
            return
        module = _sibling("speculative_requests")
        self._speculative_caps = module and module.Caps()

    def _speculative_uncapped(self, error: Exception) -> None:
        self._speculative_caps = None
        _log.warning("speculative: no more caps by request: %r", error)

    def _speculative_uncounted(self, error: Exception) -> None:
        self._speculative_meter = None
        if self._speculative_state is not None:
            self._speculative_state.meter = None
        _log.warning("speculative: steps are no longer counted: %r", error)


def _table_of(engine_scheduler: Any, state: Any) -> TableFile | None:
    """The table file for a scheduler that was started with a schedule of the known form; else None and a warning."""
    lookup = getattr(engine_scheduler, "dynamic_sd_lookup", None)
    path = os.environ.get(TABLE_VARIABLE)
    if lookup is None:
        why = "the engine runs without a schedule (none given at start, or data parallelism dropped it)"
        _inert(state, "NoSchedule", why)
    elif not isinstance(lookup, list) or len(lookup) < 2 or not all(_whole(k) for k in lookup):
        _inert(state, "UnknownSchedule", "this engine keeps its schedule in a form that is not known here")
    elif not path:
        _inert(state, "NoTableFile", f"{TABLE_VARIABLE} is not set")
    else:
        if state is not None:
            state.live = True
        return TableFile(path, lookup[1:], len(lookup) - 1)
    return None


def _inert(state: Any, reason: str, why: str) -> None:
    """`state`, where there is one, tells the reason to whoever scrapes."""
    if state is not None:
        state.live, state.reason = False, reason
    _log.warning("speculative: K is not changed while serving: %s", why)


def _sibling(name: str) -> Any:
    """The module mounted beside this one; None and a warning without it."""
    try:
        return importlib.import_module(f"{__package__}.{name}" if __package__ else name)
    except Exception as error:
        _log.warning("speculative: %s cannot be used: %r", name, error)
        return None


def _state(telemetry: Any) -> Any:
    return telemetry.State(".".join(map(str, _engine_version()))) if telemetry is not None else None


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """What `--scheduler-cls` names: vLLM calls it as it would call a scheduler class.

    Gives vLLM's own scheduler for the configuration (the asynchronous one where that is on: the other would cost a
    large part of the speed), with the table file mixed in on proven releases.
    """
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    base = _base(config)
    version = _engine_version()
    if version[:2] not in PROVEN:
        _stand_aside(version)
        return base(*args, **kwargs)
    return _hot(base)(*args, **kwargs)


def _stand_aside(version: tuple[int, ...]) -> None:
    """On a release that this file was not proven on nothing is touched; metrics say so."""
    why = f"vLLM {'.'.join(map(str, version)) or 'of unknown version'} is not among the proven releases"
    try:
        telemetry = _sibling("speculative_telemetry")
        state = _state(telemetry)
        _inert(state, "EngineVersion", why)
        if telemetry is not None:
            telemetry.serve(state)
    except Exception as error:
        _log.warning("speculative: no step telemetry: %r", error)


_classes: dict[type, type] = {}


def _hot(base: type) -> type:
    if base not in _classes:
        _classes[base] = type(f"Speculative{base.__name__}", (_HotTable, base), {"__module__": __name__})
    return _classes[base]


def _base(config: Any) -> Any:
    """The scheduler class that vLLM would take by itself."""
    if config.scheduler_config.async_scheduling:
        from vllm.v1.core.sched.async_scheduler import (  # type: ignore[import-not-found]  # only in the image
            AsyncScheduler,
        )

        return AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler  # type: ignore[import-not-found]  # only in the image

    return Scheduler


def _engine_version() -> tuple[int, ...]:
    """(0, 32, 0) of "0.32.0+cpu"; () when it cannot be told."""
    import vllm  # type: ignore[import-not-found]  # only in the image

    numbers: list[int] = []
    for part in str(getattr(vllm, "__version__", "")).split("+")[0].split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
