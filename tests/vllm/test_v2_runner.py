"""The table file under vLLM's V2 model runner, which runs on accelerators alone: K follows it and no text tells."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.vllm.resting import Engine, engine, plain, said, texts
from tests.vllm.test_off import PROMPTS, TOKENS

from realengine import paths
from realengine.load import Client, Load

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not paths.on_accelerator(), reason="the V2 runner needs an accelerator"),
]
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
COUNTED = ("spec_decode_num_draft_tokens", "spec_decode_num_drafts", "generation_tokens")


async def wait_for_k(one: Engine, k: int) -> None:
    """Until every draft within a window has K tokens, and none is made at K = 0."""
    began = time.monotonic()
    while True:
        before = await one.counts(*COUNTED)
        await asyncio.sleep(0.3)
        tokens, drafts, generated = (new - old for old, new in zip(before, await one.counts(*COUNTED), strict=True))
        if generated > 20 and tokens == k * drafts and (drafts > 0) == (k > 0):
            return
        assert time.monotonic() - began < 30.0, (k, tokens, drafts, generated)


@pytest.mark.parametrize("off", [False, True])
async def test_k_follows_the_file(off: bool, engine_python: Path, small_models: Path, tmp_path: Path) -> None:
    """Live off has no hooks there: with it K = 0 is vLLM's own."""
    with engine(engine_python, tmp_path / "with", "eagle3", small_models, "async", off=off, variables=V2) as one:
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            for k in (0, 1, 3, 2, 0, 3):
                one.force(k)
                await wait_for_k(one, k)
        finally:
            await load.stop()
        assert not (await one.told()).get("drafter_rested_steps_total")
    assert not client.failed
    found = texts(client.answers)
    assert {key: len(different) for key, different in found.items()} == dict.fromkeys(found, 1)
    with plain(engine_python, tmp_path / "plain", V2) as url:
        assert await said(url, found) == found
