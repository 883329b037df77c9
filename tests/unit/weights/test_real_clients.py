"""Fetching with the clients that serve users, from a hub and an S3 service on loopback: whole, and in
processes: ten that are killed, one that is ended, three at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.weights.loopback import forked, start
from tests.unit.weights.shelf import BRISK, KIB, content

from modelservers import s3
from modelservers.faults import Fault, Ledger, Seen
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


@dataclass
class Place:
    """A server with the model."""

    scheme: Scheme
    location: str
    environment: dict[str, str]
    ledger: Ledger | None = None

    @property
    def uri(self) -> str:
        return f"{self.scheme.value}://{self.location}"

    @property
    def source(self) -> Source:
        return open_source(ModelSource(self.scheme, self.location))

    def order(self, *faults: Fault) -> None:
        assert self.ledger is not None
        self.ledger.order(*faults)


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[Place]:
    server = HubServer(folder / "model")
    laid_out(folder / "model" / "org" / "small")
    with server.running():
        yield Place(Scheme.HF, "org/small", {"HF_ENDPOINT": server.url, "HF_HOME": str(folder)}, server.ledger)


@contextlib.contextmanager
def bucket(folder: Path) -> Iterator[Place]:
    if why := s3.unbuilt():
        pytest.skip(why)
    (folder / "buckets").mkdir()
    with s3.serving(folder / "buckets") as service:
        service.upload(laid_out(folder / "model"), "models", "team/one")
        yield Place(Scheme.S3, "models/team/one", dict(service.environment))


def laid_out(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for path, data in MODEL.items():
        (folder / path).write_bytes(data)
    return folder


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind: Callable[[Path], contextlib.AbstractContextManager[Place]] = getattr(request, "param", hub)
    for name in [name for name in os.environ if name.startswith(("AWS_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "cache").mkdir()
    with kind(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


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


@pytest.mark.parametrize("place", [hub, bucket], indirect=True)
def test_ten_kills_cost_no_complete_segment(place: Place, tmp_path: Path) -> None:
    source, cache, chance = place.source, tmp_path / "cache", random.Random(7)
    if place.ledger is not None:
        place.order(Fault(slow_to=2e6))  # of each connection
    arguments = ["fetch", "--cache", str(cache), "--verifier", place.uri]
    environment = {**place.environment, "NO_PROXY": "*"}
    kills = 0
    for point in sorted(chance.sample(range(TOTAL * 9 // 10), KILLS)):
        known = claimed(cache, source)
        if place.ledger is not None:
            place.ledger.clear()
        process = forked(environment, tmp_path / "log", arguments)
        before = had(cache)
        while process.is_alive() and had(cache) < max(point, before + 1):
            time.sleep(0.002)
        process.kill()
        process.join()
        kills += process.exitcode == -9
        now = claimed(cache, source)
        if not (cache / FOLDER / "models" / source.pin.key).exists():
            assert all(there <= now[name] for name, there in known.items()), "a complete segment was lost"
        if place.ledger is not None:
            time.sleep(0.1)  # until the server has noted what it was about to send
            for name, asked in spans(place.ledger.seen()).items():
                assert not known.get(name, set()) & asked, "a complete segment was asked for again"
    assert kills == KILLS if place.ledger is not None else kills > KILLS // 2, "a service that cannot be slowed"
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


def test_three_at_once_download_once(place: Place, tmp_path: Path) -> None:
    assert place.ledger is not None
    source, home = place.source, Cache(tmp_path / "cache")
    place.order(Fault(slow_to=5e5))
    home.prepare()
    marks = home.uses(source.pin.key)
    with home.lock(source.pin.key) as held:  # until all three have begun: none comes when the others are done
        assert held
        users = [("--object", f"space/number-{index}") for index in range(3)]
        processes = [start(place.environment, home.root, place.uri, *user) for user in users]
        ends = time.monotonic() + 60.0
        while not marks.exists() or len(list(marks.iterdir())) < 3:
            assert time.monotonic() < ends
            time.sleep(0.05)
    results = [ended(process) for process in processes]
    assert [status for status, _, _ in results] == [0, 0, 0], results
    assert sum(one.bytes for one in place.ledger.seen() if "safetensors" in one.path) == TOTAL - len(
        MODEL["config.json"]
    )
    assert_published(home.root, source)
    assert sorted(mark.name for mark in marks.iterdir()) == [f"space.number-{index}" for index in range(3)]
    for _, out, _ in results:
        told = [progress for line in out.splitlines() if (progress := progress_of(line))]
        assert any(0 < one.bytes < TOTAL for one in told), "those who wait tell of the one who works"
        assert {one.total for one in told} == {TOTAL}


def test_sigterm_ends_it_and_what_has_come_is_kept(place: Place, tmp_path: Path) -> None:
    source, cache = place.source, tmp_path / "cache"
    place.order(Fault(slow_to=1e6))
    process = start(place.environment, cache, place.uri, "--result", str(tmp_path / "result"))
    while had(cache) < TOTAL // 2:
        assert process.poll() is None
        time.sleep(0.01)
    at = time.monotonic()
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    assert (status, err.splitlines()[-1]) == (143, "stopped before it was done; downloaded bytes stay in the cache")
    assert time.monotonic() - at < 20, "a pod has 30 seconds to end"
    assert not (tmp_path / "result").exists()
    assert sum(map(len, claimed(cache, source).values())) * BRISK.segment > TOTAL // 4
    place.order()
    assert ended(start(place.environment, cache, place.uri))[0] == 0
    assert_published(cache, source)


def test_a_real_volume_that_is_full_or_read_only_is_named(place: Place) -> None:
    """On a tmpfs in a mount namespace, where the system lets users have one."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("needs user namespaces with mounts")
    for size, flags, reason in (("8m", "rw", "CacheFull"), ("64m", "ro", "CacheUnwritable")):
        script = f'mount -t tmpfs -o size={size} none /mnt && mount -o remount,{flags} /mnt && exec "$@"'
        within = ("unshare", "-rm", "sh", "-c", script, "sh")
        status, out, err = ended(start(place.environment, Path("/mnt"), place.uri, within=within))
        assert status == 3, err
        assert json.loads(out.splitlines()[-1])["error"]["reason"] == reason
