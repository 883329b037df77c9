"""The kit's way without an accelerator: stages, cells, file and report, with an engine of made-up figures.

Called by `program` for `run.sh --self-test`, and by the tests. Nothing of it is shown as measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from acceleratorkit.bench import Arm, Bench, Group, Traffic
from acceleratorkit.engines import Engine, Sent
from acceleratorkit.stages import Record, Stage, run
from acceleratorkit.unpack import FORMAT
from realengine.counters import Counters

STEP_SECONDS = 0.005


class Clock:
    """Time that passes by what is made up of it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fake:
    """An engine that accepts every other draft and takes so long for a step and a draft."""

    clock: Clock
    engine: Engine
    draft_seconds: float = 0.0005
    breaks_after: float = float("inf")
    """Seconds after which its answers fail."""
    ready_seconds: float = 1.0
    k: int = 0
    seen: Counters = field(default_factory=Counters)
    rested: float = 0.0

    def force(self, k: int) -> None:
        self.k = k
        self.clock.now += 0.3

    def waves(self, width: int, tokens: int, seconds: float) -> Sent:
        """Steps of `width` requests, until so late."""
        if self.clock.now > self.breaks_after:
            raise ConnectionError("the engine is gone")
        length, drafts = 1.0 + self.k / 2, 0.0 if self.k == 0 else float(width)
        steps = max(tokens / length, seconds // STEP_SECONDS)
        runs = self.engine.speculator and not (self.engine.skip and self.k == 0)
        lasted = steps * (STEP_SECONDS + self.draft_seconds * ((self.k or 1) if runs else 0))
        old = self.seen
        self.seen = Counters(
            drafts=old.drafts + steps * drafts, draft_tokens=old.draft_tokens + steps * drafts * self.k,
            accepted=old.accepted + steps * drafts * (length - 1), steps=old.steps + steps,
            generated=old.generated + steps * width * length,
        )  # fmt: skip
        self.rested += 0.0 if runs or not self.engine.speculator else steps
        self.clock.now += lasted
        return Sent(lasted, 0)

    def looked(self) -> tuple[Counters, float | None]:
        return self.seen, self.rested

    async def steady(self, width: int, tokens: int, settle: float, seconds: float) -> tuple[Any, Any, Sent]:
        before = self.looked()
        sent = self.waves(width, tokens, seconds)
        return before, self.looked(), sent


@contextmanager
def serving(
    clock: Clock, engines: Sequence[Engine], within: float, breaks_after: float = float("inf")
) -> Iterator[tuple[Mapping[str, Fake], Mapping[str, str]]]:
    """Fakes of all engines but those of the V1 runner, which "do not start"."""
    clock.now += 1.0
    serve = {one.name: Fake(clock, one, breaks_after=breaks_after) for one in engines if one.runner == 2}
    yield serve, {one.name: "made up" for one in engines if one.runner != 2}


def measure(path: Path, groups: Sequence[Group], seconds: float, breaks_after: float = float("inf")) -> Record:
    """Groups with made-up figures, in made-up time."""
    clock, record = Clock(), Record(path, {"format": FORMAT, "sample": True, "kit": {"vllm": "", "revision": ""}})
    bench = Bench(lambda made, within: serving(clock, made, within, breaks_after), record, clock)
    stages = [Stage(group.name, partial(bench.measure, group), 200.0, 20.0) for group in groups]
    run(stages, record, seconds, clock)
    return record


def main(home: Path) -> int:
    """Told by its status: whether cells of every arm came into the file."""
    arms = (Arm("plain", "plain"), Arm("K = 0, Skip", "skips", 0), Arm("K = 3", "skips", 3))
    group = Group("self-test", (Engine("plain"), Engine("skips", 2, "eagle3", True)), arms, (Traffic("waves", 4, 64),))
    with tempfile.TemporaryDirectory(dir=home if home.exists() else None) as folder:
        record = measure(Path(folder) / "self-test.json", [group], 120.0)
        kept = json.loads(record.path.read_text())
    missing = {arm.name for arm in arms} - {cell["arm"] for cell in kept["cells"]}
    told = f"without {', '.join(sorted(missing))}" if missing else "complete"
    print(f"self-test: imports and stages; the file is {told}")
    return 1 if missing else 0
