"""The quick start without an accelerator as it is written (`pages`): without Prometheus, K follows the load.

The page itself runs the emulator and has no Job read models; so beside docker, kind and port-forward nothing is put in
the place of anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.pages import answered, blocks, shown, typed

from demo import scene
from devcluster import Cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl"),
]


@pytest.fixture(scope="module")
def laptop(enclosures: None) -> Iterator[Cluster]:
    with Cluster.start(replace(scene.options(f"laptop-{os.getpid()}"), prometheus=False)) as started:
        yield started


def test_k_follows_the_load(laptop: Cluster, tmp_path: Path) -> None:
    """As the page says: above 1 with few requests, 0 with many."""
    said = typed(laptop, [patient(one) for one in blocks("docs/quick-start-no-accelerator.md")], tmp_path)
    few, *many = shown(said)
    assert (answered(said), int(few) > 1, many[-1]) == (True, True, "0"), (few, many)


def patient(block: str) -> str:
    """The block; the one with many requests is sent again while K is not 0: a busy machine sends fewer at a time."""
    load, end, rest = block.partition("kill $!")
    if not end:
        return block
    known = "$(kubectl get specdep qwen3-8b -o 'jsonpath={.status.speculation.k}')"
    return f'for round in 1 2 3; do\n{load}if [ "{known}" = 0 ]; then break; fi\ndone\n{end}{rest}'
