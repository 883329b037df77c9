"""Off in the real engine with tensor parallelism: both ranks leave the speculator out of the same steps, and neither
waits for one that meets an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.vllm.resting import Engine, engine, plain, said, share, texts

from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(1500)

TWO = ("--tensor-parallel-size", "2")
PROMPTS = tuple(f"def {name}(self, value):\n    " for name in ("read", "write", "find", "close"))
HEADS = ("why_not",)
"""Of what may fail in a worker, the parts that EAGLE heads have too."""
CATCHING_UP = ("made", "learn", "rest", "missed", "_inputs", "requests")


@pytest.fixture
def models(request: pytest.FixtureRequest, small_models: Path, tmp_path: Path) -> Path:
    """Folder in which the draft model is the verifier: every draft is accepted, unless something is missing."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "draft").symlink_to(small_models / "target")
    (folder / "eagle3").symlink_to(small_models / "eagle3")
    return folder


async def drafts(one: Engine, k: int) -> float:
    """K is in force, and drafts of it were verified: the share that was accepted."""
    one.force(k)
    await one.until("table_version", one.version)
    await one.generated(20)
    before = await one.drafts()
    return share(before, await one.drafts_since(before, 100.0))


@pytest.mark.parametrize(
    ("method", "scheduler"), [("draft_model", "sync"), ("draft_model", "async"), ("eagle3", "sync")]
)
async def test_two_ranks_leave_the_speculator_out_of_the_same_steps(
    method: str, scheduler: str, engine_python: Path, models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", method, models, scheduler, flags=TWO) as one:
        assert f'scheduler="{scheduler}"' in await one.text()
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, 60)
        await load.set_width(2)
        try:
            accepted = [await drafts(one, 3)]
            for k in (2, 3, 2):
                await one.rest(20.0)
                accepted.append(await drafts(one, k))
        finally:
            await load.stop()
        await client.ask(PROMPTS[0], 60)
        told, (first, second) = await one.told(), await one.ranks()
        assert first == second
        assert first == [told["drafter_rested_steps_total"], ""]
        assert told["requests_with_gaps"] == 0
        assert method != "draft_model" or min(accepted) > accepted[0] - 0.03, accepted
    assert not client.failed
    found = texts(client.answers)
    assert {key: len(different) for key, different in found.items() if len(different) > 1} == {}
    with plain(engine_python, tmp_path / "plain") as url:
        assert await said(url, found) == found


@pytest.mark.parametrize(
    ("method", "fault", "rank"),
    [
        *(("eagle3", fault, 1) for fault in HEADS),
        *(("draft_model", fault, 1) for fault in CATCHING_UP),
        *(("draft_model", fault, 0) for fault in ("rest", "_inputs")),
    ],
)
async def test_what_fails_in_one_rank_ends_off_for_both_and_serving_goes_on(
    method: str, fault: str, rank: int, engine_python: Path, models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", method, models, fault=f"{fault}@{rank}", flags=TWO) as one:
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, 20)
        await load.set_width(2)
        try:
            for k in (0, 3, 0):
                one.force(k)
                await asyncio.sleep(1.0)  # the file is looked at five times a second
                await one.generated(60)
        finally:
            await load.stop()
        ((part, why),) = await one.refused()
        assert part == "Off"
        assert f"InjectedError('{fault}')" in why
        assert (f"rank {rank}" in why) is (rank > 0)
        ranks = await one.ranks()
        assert ranks[0][0] == ranks[1][0]
        log = one.server.log.read_text()
    assert len(client.answers) > len(PROMPTS)
    assert not client.failed
    found = texts(client.answers)
    assert {key: len(different) for key, different in found.items() if len(different) > 1} == {}
    assert 1 <= sum("InjectedError" in line for line in log.splitlines()) <= 3
