"""The lock tells who lives; what the dead left is swept, what lives is never touched."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from devcluster import DevClusterError, mounts, state
from devcluster.state import Place


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _start(name: str) -> int:
    """A cluster as far as its files go."""
    place = Place.named(name)
    lock = place.acquire()
    assert lock is not None
    place.directory.mkdir()
    (place.directory / "file").touch()
    return lock


def test_living_cluster_is_seen_refused_and_spared() -> None:
    lock = _start("a")
    place = Place.named("a")
    assert place.alive()
    assert state.living() == ["a"]
    assert place.acquire() is None
    assert state.sweep() == []
    assert (place.directory / "file").exists()
    os.close(lock)


def test_dead_cluster_is_swept_and_its_name_is_free() -> None:
    os.close(_start("a"))
    place = Place.named("a")
    assert not place.alive()
    assert state.living() == []
    assert state.sweep() == ["a"]
    assert not place.directory.exists()
    assert not place.lock.exists()
    os.close(_start("a"))


def test_directory_without_a_lock_is_swept() -> None:
    Place.named("old").directory.mkdir()
    assert state.sweep() == ["old"]
    assert list(state.base_dir().iterdir()) == []


def test_asking_leaves_no_trace() -> None:
    assert not Place.named("never").alive()
    assert list(state.base_dir().iterdir()) == []


def test_lock_of_a_deleted_file_is_not_taken_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, the last owner deletes the file and another starter makes a new one."""
    place = Place.named("a")
    real = os.open
    calls: list[Path] = []

    def open_then_lose(path: Path, flags: int, mode: int) -> int:
        descriptor = real(path, flags, mode)
        if not calls:
            place.lock.unlink()
        calls.append(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    lock = place.acquire()
    assert lock is not None
    assert len(calls) == 2
    assert os.fstat(lock).st_ino == place.lock.stat().st_ino
    os.close(lock)


def test_directory_with_a_mount_in_it_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = _start("a")
    place = Place.named("a")
    monkeypatch.setattr(mounts, "below", lambda directory: [directory / "volume"])
    place.discard()
    os.close(lock)
    assert (place.directory / "file").exists()


_TABLE = r"""21 1 0:5 / / rw - ext4 /dev/vda rw
30 21 0:6 / /tmp/a rw - tmpfs none rw
31 30 0:7 /x /tmp/a/b\040c rw shared:4 - ext4 /dev/vda rw
32 21 0:8 / /tmp/ab rw - tmpfs none rw
33 21 0:8 / /tmp/other rw - tmpfs none rw
"""


def test_mounts_below_a_directory_are_found_deepest_first() -> None:
    assert mounts.below(Path("/tmp/a"), _TABLE) == [Path("/tmp/a/b c"), Path("/tmp/a")]
    assert mounts.below(Path("/tmp/a/b c"), _TABLE) == [Path("/tmp/a/b c")]
    assert mounts.below(Path("/tmp/none"), _TABLE) == []


def test_waiting_for_a_lock_ends_when_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Place.named("a").acquire()
    assert held is not None
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(held))
    lock = Place.named("a").acquire(patience_seconds=5)
    assert lock is not None
    os.close(lock)


def test_directory_that_others_may_write_is_refused() -> None:
    state.base_dir().chmod(0o777)
    with pytest.raises(DevClusterError, match="is not a private directory"):
        state.base_dir()


def test_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"specdev-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(DevClusterError, match="is not a private directory"):
        state.base_dir()
