"""Fetching from a hub on loopback in processes: ten that are killed, one that is ended, three at once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.weights.loopback import forked, start
from tests.unit.weights.shelf import BRISK, KIB, content

from modelservers.faults import Fault, Seen
from modelservers.hub import HubServer
from speculative_operator.domain.jobs import progress_of
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.source import Source
from speculative_operator.weights.sources import open_source

MODEL = {
    "config.json": b"{}",
    "model-1.safetensors": content(5000 * KIB, 1),
    "model-2.safetensors": content(3001 * KIB, 2),
}
TOTAL = sum(map(len, MODEL.values()))
KILLS = 10
URI = "hf://org/small"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Serves the model as `org/small`."""
    folder = tmp_path / "hub" / "org" / "small"
    folder.mkdir(parents=True)
    for path, data in MODEL.items():
        (folder / path).write_bytes(data)
    server = HubServer(tmp_path / "hub")
    for name in [name for name in os.environ if name.startswith("HF_")]:
        monkeypatch.delenv(name)
    for name, value in {"NO_PROXY": "*", "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with server.running():
        yield server


@pytest.fixture
def source(hub: HubServer) -> Source:
    return open_source(ModelSource(Scheme.HF, "org/small"))


@pytest.fixture
def environment(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "NO_PROXY": "*"}


def claimed(cache: Path, source: Source) -> dict[str, set[int]]:
    """Segments that are on the disk, by file."""
    folder, found = cache / FOLDER / "partial" / source.pin.key, dict[str, set[int]]()
    for entry in source.files:
        listed = folder / "segments" / entry.path
        whole = (folder / "files" / entry.path).exists()
        numbers = range(-(-entry.size // BRISK.segment)) if whole else ()
        found[entry.path] = set(numbers) | {
            int(line) for line in (listed.read_text().splitlines()[1:] if listed.exists() else ())
        }
    return found


def spans(seen: list[Seen]) -> dict[str, set[int]]:
    """Segments that were asked for, by file."""
    found: dict[str, set[int]] = {}
    for one in seen:
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", one.range):
            name = one.path.rpartition("/")[2].partition("?")[0]
            numbers = range(int(asked[1]) // BRISK.segment, int(asked[2]) // BRISK.segment + 1)
            found.setdefault(name, set()).update(numbers)
    return found


def had(cache: Path) -> int:
    """Bytes on the disk."""
    return sum(path.stat().st_blocks * 512 for path in cache.glob(f"{FOLDER}/partial/*/[fp]*s/*"))


def test_ten_kills_cost_no_complete_segment(
    hub: HubServer, source: Source, environment: dict[str, str], tmp_path: Path
) -> None:
    cache, chance = tmp_path / "cache", random.Random(7)
    cache.mkdir()
    hub.ledger.order(Fault(slow_to=4e5))  # of each connection: the last quarter takes far longer than a look
    arguments = ["fetch", "--cache", str(cache), "--verifier", URI]
    for point in sorted(chance.sample(range(TOTAL * 3 // 4), KILLS)):
        known = claimed(cache, source)
        hub.ledger.clear()
        process = forked(environment, tmp_path / "log", arguments)
        before = had(cache)
        while process.is_alive() and had(cache) < max(point, before + 1):
            time.sleep(0.002)
        process.kill()
        process.join()
        assert process.exitcode == -9
        now = claimed(cache, source)
        assert all(there <= now[name] for name, there in known.items()), "a complete segment was lost"
        time.sleep(0.1)  # until the server has noted what it was about to send
        for name, asked in spans(hub.ledger.seen()).items():
            assert not known.get(name, set()) & asked, "a complete segment was asked for again"
    process = forked(environment, tmp_path / "log", arguments)
    process.join()
    assert process.exitcode == 0, (tmp_path / "log").read_text()
    assert_published(cache, source)


def assert_published(cache: Path, source: Source) -> None:
    folder = cache / FOLDER / "models" / source.pin.key
    assert {path: (folder / path).read_bytes() for path in MODEL} == MODEL
    assert not (cache / FOLDER / "partial" / source.pin.key).exists()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_three_at_once_download_once(
    hub: HubServer, source: Source, environment: dict[str, str], tmp_path: Path
) -> None:
    home = Cache(tmp_path / "cache")
    home.root.mkdir()
    hub.ledger.order(Fault(slow_to=5e5))
    home.prepare()
    marks = home.uses(source.pin.key)
    with home.lock(source.pin.key) as held:  # until all three have begun: none comes when the others are done
        assert held
        users = [("--object", f"space/number-{index}") for index in range(3)]
        processes = [start(environment, home.root, URI, *user) for user in users]
        ends = time.monotonic() + 60.0
        while not marks.exists() or len(list(marks.iterdir())) < 3:
            assert time.monotonic() < ends
            time.sleep(0.05)
    results = [ended(process) for process in processes]
    assert [status for status, _, _ in results] == [0, 0, 0], results
    assert sum(one.bytes for one in hub.ledger.seen() if "safetensors" in one.path) == TOTAL - len(MODEL["config.json"])
    assert_published(home.root, source)
    assert sorted(mark.name for mark in marks.iterdir()) == [f"space.number-{index}" for index in range(3)]
    for _, out, _ in results:
        told = [progress for line in out.splitlines() if (progress := progress_of(line))]
        assert any(0 < one.bytes < TOTAL for one in told), "those who wait tell of the one who works"
        assert {one.total for one in told} == {TOTAL}


def test_sigterm_ends_it_and_what_has_come_is_kept(
    hub: HubServer, source: Source, environment: dict[str, str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    hub.ledger.order(Fault(slow_to=1e6))
    process = start(environment, cache, URI)
    while had(cache) < TOTAL // 2:
        assert process.poll() is None
        time.sleep(0.01)
    at = time.monotonic()
    process.send_signal(signal.SIGTERM)
    status, out, err = ended(process)
    assert (status, err.splitlines()[-1]) == (143, "stopped before it was done; downloaded bytes stay in the cache")
    assert time.monotonic() - at < 20, "a pod has 30 seconds to end"
    assert all(progress_of(line) for line in out.splitlines()), "no result"
    assert sum(map(len, claimed(cache, source).values())) * BRISK.segment > TOTAL // 4
    hub.ledger.order()
    assert ended(start(environment, cache, URI))[0] == 0
    assert_published(cache, source)


def test_a_real_volume_that_is_full_or_read_only_is_named(environment: dict[str, str]) -> None:
    """On a tmpfs in a mount namespace, where the system lets users have one."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("needs user namespaces with mounts")
    for size, flags, reason in (("8m", "rw", "CacheFull"), ("64m", "ro", "CacheUnwritable")):
        script = f'mount -t tmpfs -o size={size} none /mnt && mount -o remount,{flags} /mnt && exec "$@"'
        within = ("unshare", "-rm", "sh", "-c", script, "sh")
        status, out, err = ended(start(environment, Path("/mnt"), URI, within=within))
        assert status == 3, err
        assert json.loads(out.splitlines()[-1])["error"]["reason"] == reason
