"""Fetching by real processes, killed by SIGKILL, ended by SIGTERM, three at once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.unit.weights.loopback import SEGMENT, Client, Sent, Server, forked, start
from tests.unit.weights.shelf import KIB, Shelf, content

from speculative_operator.domain.jobs import decode, progress_of
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.cache import Cache

MODEL = {
    "config.json": b"{}",
    "model-1.safetensors": content(3500 * KIB, 1),
    "model-2.safetensors": content(2501 * KIB, 2),
}
TOTAL = sum(map(len, MODEL.values()))
KEY = Shelf(MODEL).pin.key
PARALLEL = 4


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(MODEL, rate=10e6) as server:
        yield server


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def assert_published(cache: Path) -> None:
    folder = cache / FOLDER / "models" / KEY
    assert {name: (folder / name).read_bytes() for name in MODEL} == MODEL
    assert not (cache / FOLDER / "partial" / KEY).exists()


def claimed(cache: Path, server: Server) -> dict[str, set[int]]:
    """Segments that are on the disk."""
    folder = cache / FOLDER / "partial" / KEY
    found: dict[str, set[int]] = {}
    for entry in Client(server.url, Shelf(MODEL).pin).files:
        if (folder / "files" / entry.path).exists():
            found[entry.path] = set(range(-(-entry.size // SEGMENT)))
        elif (listed := folder / "segments" / entry.path).exists():
            found[entry.path] = {int(line) for line in listed.read_text().splitlines()[1:]}
    return found


def touched(answer: Sent) -> set[int]:
    return set(range(answer.start // SEGMENT, -(-answer.end // SEGMENT)))


def killed_at(server: Server, process: BaseProcess, served: int) -> None:
    reached = threading.Event()
    server.watch = lambda sent: reached.set() if sent >= served else None
    while not reached.wait(0.02):
        assert process.is_alive()
    process.kill()
    process.join()
    time.sleep(0.05)  # until the server has noticed, and stops counting what goes nowhere


def test_ten_kills_cost_no_byte_of_a_complete_segment(server: Server, tmp_path: Path) -> None:
    chance = random.Random(20)
    arguments = ["fetch", "--cache", str(tmp_path), "--verifier", "hf://small/model", "--parallel", str(PARALLEL)]
    for point in sorted(chance.sample(range(TOTAL), 10)):
        before, known = len(server.answers), claimed(tmp_path, server)
        process = forked({"LOOPBACK": server.url}, tmp_path / "log", arguments)
        killed_at(server, process, max(point, server.count + 1))
        for answer in server.answers[before:]:
            assert not touched(answer) & known.get(answer.path, set()), "a complete segment was asked for again"
        now = claimed(tmp_path, server)
        assert all(there <= now[path] for path, there in known.items()), "a complete segment was lost"
    process = forked({"LOOPBACK": server.url}, tmp_path / "log", arguments)
    process.join()
    assert process.exitcode == 0, (tmp_path / "log").read_text()
    assert_published(tmp_path)
    again = server.count - TOTAL
    assert 0 < again <= 10 * PARALLEL * (SEGMENT + 256 * KIB), "more than the segments in flight came twice"


def test_three_at_once_download_once(server: Server, tmp_path: Path) -> None:
    place = Cache(tmp_path)
    place.prepare()
    with place.lock(KEY) as held:  # until all three have begun: none comes when the others are done
        assert held
        processes = [start(server.url, tmp_path, "--object", f"space/number-{index}") for index in range(3)]
        ends = time.monotonic() + 60.0
        while not place.uses(KEY).exists() or len(list(place.uses(KEY).iterdir())) < 3:
            assert time.monotonic() < ends
            time.sleep(0.05)
    results = [ended(process) for process in processes]
    assert [status for status, _, _ in results] == [0, 0, 0], results
    assert server.count == TOTAL
    assert_published(tmp_path)
    assert sorted(mark.name for mark in (tmp_path / FOLDER / "uses" / KEY).iterdir()) == [
        f"space.number-{i}" for i in range(3)
    ]
    for _, out, _ in results:
        told = [progress for line in out.splitlines() if (progress := progress_of(line))]
        assert any(0 < one.bytes < TOTAL for one in told), "those who wait tell of the one who works"
        assert {one.total for one in told} == {TOTAL}


def test_sigterm_ends_it_and_what_has_come_is_kept(server: Server, tmp_path: Path) -> None:
    process, reached = start(server.url, tmp_path, "--result", str(tmp_path / "result")), threading.Event()
    server.watch = lambda sent: reached.set() if sent > TOTAL // 2 else None
    assert reached.wait(20)
    at = time.monotonic()
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    assert (status, err.splitlines()[-1]) == (143, "stopped before it was done; downloaded bytes stay in the cache")
    assert time.monotonic() - at < 20, "a pod has 30 seconds to end"
    assert not (tmp_path / "result").exists()
    assert sum(map(len, claimed(tmp_path, server).values())) * SEGMENT > TOTAL // 4
    assert ended(start(server.url, tmp_path))[0] == 0
    assert_published(tmp_path)


def test_a_cached_pair_needs_no_source(server: Server, tmp_path: Path) -> None:
    assert ended(start(server.url, tmp_path))[0] == 0
    status, _, err = ended(start("", tmp_path, "--result", str(tmp_path / "result")))
    assert status == 0, err
    result = decode((tmp_path / "result").read_text())
    assert result is not None
    assert (result["verifier"]["key"], result["verifier"]["bytes"], result["verifier"]["cached"]) == (KEY, TOTAL, True)
    status, _, err = ended(start("", tmp_path, model="hf://other/model"))
    assert status == 1
    assert "no way out" in err


def test_a_real_volume_that_is_full_or_read_only_is_named(server: Server, tmp_path: Path) -> None:
    """On a tmpfs in a mount namespace, where the system lets users have one."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("needs user namespaces with mounts")
    for size, flags, reason in (("8m", "rw", "CacheFull"), ("64m", "ro", "CacheUnwritable")):
        run = start_in_tmpfs(server.url, size, flags)
        assert run.returncode == 3, run.stderr
        assert json.loads(run.stdout.splitlines()[-1])["error"]["reason"] == reason


def start_in_tmpfs(url: str, size: str, flags: str) -> subprocess.CompletedProcess[str]:
    script = f'mount -t tmpfs -o size={size} none /mnt && mount -o remount,{flags} /mnt && exec "$@"'
    within = ("unshare", "-rm", "sh", "-c", script, "sh")
    process = start(url, Path("/mnt"), within=within)
    out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess(within, process.returncode, out, err)
