"""Off in the real engine: the speculator rests while K = 0 lasts, no text changes by it, and drafts come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.vllm.resting import engine, plain, said, share, texts

from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(1800)

PROMPTS = tuple(f"def {name}(self, value):\n    " for name in ("read", "write", "find", "close", "split", "join"))
TOKENS = 60
WORKER = (
    *("why_not", "made", "requests"),
    *("learn", "rest", "missed", "_inputs", "compute"),
)
SCHEDULER = (
    *("step", "mark", "hear", "count_drafts", "k_for", "count"),
    *("scheduling", "scheduled", "finished", "poll"),
)
"""What fails in turn, on the workers' side and on the scheduler's."""
ENDS = {
    "k_for": ("Blocks", "Off"), "count": ("Blocks", "Off"), "scheduling": ("Counting",),
    "scheduled": ("Hooks",), "finished": ("Hooks",), "poll": ("Table",),
}  # fmt: skip
"""Parts of the plug-in that end by it, where that is not the part `Off` alone."""


@pytest.mark.parametrize(
    ("method", "scheduler"),
    [
        *((method, scheduler) for method in ("draft_model", "eagle3") for scheduler in ("sync", "async")),
        ("ngram", "sync"),  # vLLM 0.32 allows it no other
    ],
)
async def test_the_speculator_rests_and_comes_back_and_no_text_tells(
    method: str, scheduler: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", method, small_models, scheduler) as one:
        assert f'scheduler="{scheduler}"' in await one.text()
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            for turn in range(12):
                await one.rest(40.0)
                one.force(3 if turn % 2 else 2)
                await one.until("drafter_off", 0.0, most=0.0)
                await asyncio.sleep(0.5)
        finally:
            await load.stop()
        await client.ask(PROMPTS[0], TOKENS)  # gaps are counted anew with each step
        assert (await one.told())["requests_with_gaps"] == 0
    assert not client.failed
    found = texts(client.answers)
    assert len(client.answers) > 2 * len(found), "every request was sent more than once"
    assert {key: len(one) for key, one in found.items()} == dict.fromkeys(found, 1)
    with plain(engine_python, tmp_path / "plain") as url:
        assert await said(url, found) == found


LONG = tuple(" ".join(f"{name}{number} = {number}" for number in range(40)) for name in ("one", "two", "six", "ten"))
"""Prompts of several blocks, which the prefix cache keeps."""


CACHED = tuple(
    "\n".join(
        f"def {name}_{part}(self, {part}):\n    return self.{name}.{part}({number})"
        for number, part in enumerate(
            ("get", "put", "find", "copy", "close", "open", "clear", "items", "keys", "pop", "update", "values")
        )
    )
    for name in ("store", "queue", "table", "cache")
)


@pytest.mark.parametrize("scheduler", ["sync", "async"])
async def test_a_draft_model_catches_up_with_what_it_missed(
    scheduler: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    """The verifier drafts for itself: every draft is accepted, unless something is missing."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "draft").symlink_to(small_models / "target")
    with engine(engine_python, tmp_path / "with", "draft_model", models, scheduler) as one:
        client = Client(one.server.url, "tiny")
        load = Load(client, LONG[:3], 700)
        await load.set_width(3)
        await asyncio.sleep(1.0)
        before = await one.drafts()
        # asynchronous drafts go on beyond the end of a request
        never_off = share(before, await one.drafts_since(before, 400.0))
        assert never_off > 0.94
        found: list[float] = []
        for turn in range(6):  # requests that ran while off
            await one.rest(100.0)
            await one.until("requests_with_gaps", 1.0)
            before = await one.drafts()
            one.force(3 if turn % 2 else 2)
            found.append(share(before, await one.drafts_since(before, 200.0)))
        await load.stop()
        assert min(found) > 0.93, found
        assert sum(found) / len(found) > never_off - 0.02, (found, never_off)
        one.force(0)  # and those whose prompts were cached while off
        await one.until("table_version", one.version)
        for prompt in (LONG[0], *CACHED):
            await client.ask(prompt, 40)
        await one.until("drafter_off", 1.0)
        one.force(3)
        await client.ask(LONG[0], 40)
        before = await one.drafts()
        for prompt in CACHED:
            await client.ask(prompt, 60)
        assert share(before, await one.drafts()) > never_off - 0.02
        await one.until("requests_with_gaps", 0.0, most=0.0)
    assert not client.failed


@pytest.mark.parametrize("fault", [*WORKER, *SCHEDULER])
async def test_whatever_fails_in_here_serving_goes_on(
    fault: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", "draft_model", small_models, fault=fault) as one:
        assert ('scheduler="async"' in await one.text()) is (fault == "hear")
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            for k in (0, 3, 0, 2):
                one.force(k)
                await asyncio.sleep(4.0)
        finally:
            await load.stop()
        parts = dict(await one.refused())
        log = one.server.log.read_text()
    assert len(client.answers) > len(PROMPTS)
    assert not client.failed
    assert {key: len(found) for key, found in texts(client.answers).items() if len(found) > 1} == {}
    assert set(parts) == ({*ENDS.get(fault, ("Off",))})
    warnings = [line for line in log.splitlines() if "InjectedError" in line]
    assert 1 <= len(warnings) <= 2, warnings
