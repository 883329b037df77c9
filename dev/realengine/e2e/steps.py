"""What several steps need: the play's state, windows of counters, waiting for an object to serve."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from demo.figures import adoptions
from demo.scene import is_ready
from realengine.counters import Counters
from realengine.e2e.report import Report
from realengine.e2e.stage import Stage, StageError, until
from realengine.load import Answer, Client, Load
from realengine.scene import Rows

NAME = "tiny"
START_SECONDS = 600.0
PATIENCE_SECONDS = 20.0
"""Beyond what a step should take: the machine may be busy."""
PROMPTS = tuple(
    f'def {verb}_{noun}({noun}, default=None):\n    """{verb.capitalize()} the {noun}.\n\n    Return '
    for verb, noun in (
        *(("read", "file"), ("write", "line"), ("parse", "header"), ("find", "match"), ("close", "socket")),
        *(("open", "stream"), ("count", "words"), ("check", "value"), ("split", "path"), ("join", "names")),
    )
)
"""Beginnings of Python functions: what the small models were trained on."""


@dataclass
class Play:
    """One run: the stage, what is to be reported, and every answer that clients got."""

    stage: Stage
    report: Report
    answers: list[Answer] = field(default_factory=list)
    """Of the engine as it is; not of synthetic acceptance, whose text is wrong on purpose."""
    synthetic: list[Answer] = field(default_factory=list)
    retunes: int = 0
    restarts: dict[str, int] = field(default_factory=dict)
    """Pod -> restarts of its containers, as last seen."""
    models: set[str] = field(default_factory=set)
    """What pods were held to load, by its name at the hub."""

    def note_restarts(self, pods: Sequence[dict[str, Any]]) -> None:
        """Remember how often the containers of these pods were restarted."""
        for pod in pods:
            counts = (int(one["restartCount"]) for one in pod["status"].get("containerStatuses", []))
            self.restarts[pod["metadata"]["name"]] = sum(counts)

    async def client(self, *, synthetic: bool = False) -> Client:
        """A client of the object's Service whose answers are counted."""
        return Client(await self.stage.url(NAME), "tiny", self.synthetic if synthetic else self.answers)


async def ready(stage: Stage, generation: int, seconds: float = START_SECONDS, *, without: str = "") -> None:
    """Wait until the object of at least that generation serves and no older pod is left: one pod, which is not that of
    uid `without`. While a pair is on its way the former one serves, and the object is as ready as it was."""

    async def served() -> bool:
        body = await stage.get(NAME)
        status = body.get("status") or {}
        known = {entry["type"]: entry for entry in status.get("conditions", [])}
        fresh = all(
            known.get(kind, {}).get("status") == "True" and known[kind].get("observedGeneration", 0) >= generation
            for kind in ("Ready", "RolloutHealthy")
        )
        pods = await stage.pods(NAME)
        return fresh and len(pods) == 1 and pods[0]["metadata"]["uid"] != without and is_ready(pods[0])

    await until(f"{NAME} serves generation {generation}", served, seconds, every=0.5)


async def window(stage: Stage, pod: dict[str, Any], seconds: float, tokens: int = 60) -> Counters:
    """What an engine counted in so many seconds, or in as many more as so many tokens take."""
    before = await stage.look(pod)
    deadline = time.monotonic() + seconds + PATIENCE_SECONDS
    while True:
        await asyncio.sleep(seconds)
        seen = (await stage.look(pod)).since(before)
        if seen.generated >= tokens or time.monotonic() > deadline:
            return seen


async def wait_until_active(stage: Stage, pod: str, version: int, seconds: float = 20.0) -> float:
    """Wait until the engine has the table of that version, or a later one; the moment, unix seconds.

    An idle engine looks at no table: keep requests going.
    """

    async def seen() -> float | None:
        found = adoptions(await stage.log(pod))
        return max((moment for number, moment in found.items() if number >= version), default=None)

    moment: float = await until(f"table version {version} in force in {pod}", seen, seconds, every=0.1)
    return moment


async def set_schedule(stage: Stage, schedule: Rows) -> None:
    """Write a schedule into the spec, as `kubectl edit` would."""
    await stage.patch(NAME, {"spec": {"speculation": {"schedule": [list(row) for row in schedule]}}})


async def next_version(stage: Stage, schedule: Rows, seconds: float = 15.0) -> int:
    """Wait until the operator's table says what the spec's schedule says; its version."""
    wanted = [list(row) for row in schedule]

    async def written() -> int | None:
        try:
            table = await stage.table(NAME)
        except ValueError:
            return None  # somebody has written what is no table
        return int(table["version"]) if table["rows"] == wanted else None

    version: int = await until(f"a table {wanted}", written, seconds, every=0.1)
    return version


def distinct(answers: Sequence[Answer]) -> dict[tuple[str, int], set[str]]:
    """(prompt, tokens) -> every text that clients got for it."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for answer in answers:
        if not answer.error:
            found[answer.prompt, answer.tokens].add(answer.text)
    return found


@dataclass
class Traffic:
    """A load that is going, as a context: stopped, with every answer waited for, when it is left."""

    client: Client
    width: int
    tokens: int = 60
    pause: float = 0.0

    async def __aenter__(self) -> Load:
        self._load = Load(self.client, PROMPTS, self.tokens, self.pause)
        await self._load.set_width(self.width)
        return self._load

    async def __aexit__(self, *_error: object) -> None:
        await self._load.stop()


async def settle(stage: Stage, pod: dict[str, Any], wanted: float, seconds: float = 40.0) -> None:
    """Wait until as many requests run as the load is wide (or as the engine takes)."""
    deadline = time.monotonic() + seconds
    while (await stage.look(pod)).running < wanted:
        if time.monotonic() > deadline:
            raise StageError(f"the engine runs fewer than {wanted} requests after {seconds:.0f} s")
        await asyncio.sleep(0.1)
