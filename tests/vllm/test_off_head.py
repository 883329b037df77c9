"""An EAGLE-3 head and an MTP layer after off in the real engine: requests that begin then have their drafts accepted as
if it never was.

Their prompts are cached while off. Each knows what the verifier says to them by heart, and only from its own KV
cache: a prompt that it had not seen would show.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.vllm.resting import Engine, engine
from tests.vllm.test_off import CACHED, LONG

from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def models(engine_python: Path, small_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the head, and with the verifier that has the layer."""
    folder, verifier = tmp_path_factory.mktemp("models"), small_models / "target"
    for script, arguments in (
        ("trained_head.py", (verifier, small_models / "eagle3", folder / "eagle3")),
        ("mtp_verifier.py", (verifier, folder / "mtp")),
    ):
        command = [str(one) for one in (engine_python, Path(__file__).with_name(script), *arguments)]
        subprocess.run(command, input=json.dumps(CACHED), text=True, check=True, timeout=600)
    return folder


async def story(one: Engine, off: bool) -> tuple[float, float]:
    """Share of first drafts accepted after the return, and of prompt tokens that came out of the prefix cache."""
    client = Client(one.server.url, "tiny")
    busy = Load(client, LONG[:2], 60)
    await busy.set_width(2)
    if off:
        await one.rest(10.0)
    else:
        one.force(0)
        await one.until("table_version", one.version)
    for prompt in CACHED:
        await client.ask(prompt, 4)
    if off:
        assert (await one.told())["drafter_off"] == 1
    await busy.stop()
    one.force(1)
    await one.until("table_version", one.version)
    await client.ask(LONG[0], 4)
    before, hits = await one.drafts(), await one.counted("prefix_cache_hits")
    for prompt in CACHED:
        await client.ask(prompt, 60)
    after = await one.drafts()
    assert not client.failed
    return (after[0] - before[0]) / (after[1] - before[1]), await one.counted("prefix_cache_hits") - hits


@pytest.mark.parametrize("scheduler", ["sync", "async"])
@pytest.mark.parametrize("method", ["eagle3", "mtp"])
async def test_who_begins_after_off_has_drafts_accepted_as_if_it_never_was(
    method: str, scheduler: str, engine_python: Path, models: Path, tmp_path: Path
) -> None:
    found = {}
    for off in (False, True):
        flags = ("--block-size", "32")
        with engine(engine_python, tmp_path / str(off), method, models, scheduler, flags=flags, off=off) as one:
            found[off], cached = await story(one, off)
            assert cached > 32 * len(CACHED)
    assert found[False] > {"eagle3": 0.5, "mtp": 0.3}[method]
    assert found[True] > found[False] - 0.02, found
