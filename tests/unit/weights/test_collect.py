"""Collection: what nobody wants goes, all of it, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.weights.shelf import Shelf, content, meter

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Scheme
from speculative_operator.weights.cache import MANIFEST, Cache, collect
from speculative_operator.weights.fetch import fetch

HOUR = 3600.0
NOW = 1_000_000_000.0
PINS = {
    name: Pin(Scheme.HF, f"org/{name}", "", "c" * 40)
    for name in ("old", "recent", "kept", "abandoned", "gone", "a", "b", "c", "d")
}
KEYS = {name: pin.key for name, pin in PINS.items()}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path)
    made.prepare()
    return made


def published(cache: Cache, key: str, hours_ago: float, *users: str) -> Path:
    """A version that `users` wanted so long ago; without any, one that was published then."""
    folder = cache.model(key)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(content(10))
    pin = next(asdict(one) for one in PINS.values() if one.key == key)
    (folder / MANIFEST).write_text(json.dumps({"pin": pin, "files": [["model.safetensors", 10, ""]], "bytes": 10}))
    marked(cache, key, hours_ago, *users)
    for path in (folder / MANIFEST, folder):
        os.utime(path, (NOW - hours_ago * HOUR,) * 2)
    return folder


def partial(cache: Cache, key: str, hours_ago: float, *users: str) -> Path:
    folder = cache.partial(key)
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "model.safetensors").write_bytes(content(7))
    marked(cache, key, hours_ago, *users)
    os.utime(folder, (NOW - hours_ago * HOUR,) * 2)
    return folder


def marked(cache: Cache, key: str, hours_ago: float, *users: str) -> None:
    for index, user in enumerate(users):
        cache.use(key, user, expires=True)
        mark = cache.uses(key) / user.replace("/", ".")
        os.utime(mark, (NOW - (hours_ago + index) * HOUR,) * 2)


def collected(cache: Cache, *keep: str) -> tuple[str, ...]:
    return collect(cache.root, keep=keep, grace=24 * HOUR, now=NOW)


def test_versions_go_by_their_newest_use(cache: Cache) -> None:
    old, recent = published(cache, KEYS["old"], 25, "a/x", "a/y"), published(cache, KEYS["recent"], 23, "a/x", "a/y")
    assert collected(cache) == (KEYS["old"],)
    assert not old.exists()
    assert not cache.uses(KEYS["old"]).exists()
    assert recent.exists()
    assert cache.uses(KEYS["recent"]).exists()
    assert list(cache.trash.iterdir()) == []


def test_what_is_locked_stays(cache: Cache) -> None:
    folder = partial(cache, KEYS["old"], 99, "a/x")
    with cache.lock(KEYS["old"]) as held:
        assert held
        assert collected(cache) == ()
        assert folder.exists()
    assert collected(cache) == (KEYS["old"],)


def test_a_mark_set_while_the_lock_is_taken_saves_the_version(cache: Cache) -> None:
    """Somebody finds the version published at the moment when it is about to go."""
    folder, lock = published(cache, KEYS["old"], 99, "a/x"), Cache.lock

    @contextlib.contextmanager
    def late(self: Cache, key: str) -> Iterator[bool]:
        with lock(self, key) as held:
            self.use(key, "a/late", expires=True)
            yield held

    with mock.patch.object(Cache, "lock", late):
        assert collected(cache) == ()
    assert folder.exists()


def test_marks_alone_do_not_stay(cache: Cache) -> None:
    marked(cache, KEYS["gone"], 25, "a/x")
    assert collected(cache) == ()
    assert list((cache.home / "uses").iterdir()) == []


def test_an_empty_folder_is_an_empty_cache(tmp_path: Path) -> None:
    assert collect(tmp_path) == ()


def test_read_only_files_go(tmp_path: Path) -> None:
    shelf = Shelf({"a/b/c": content(5)})
    folder = fetch(shelf, tmp_path, meter(shelf), user="a/x", expires=True)
    assert collect(tmp_path, grace=-1) == (folder.name,)
    assert not folder.exists()


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", range(4))
def test_a_crash_leaves_whole_versions_and_rubbish_that_goes_next_time(cache: Cache, after: int) -> None:
    old, recent = published(cache, KEYS["old"], 25, "a/x"), published(cache, KEYS["recent"], 1, "a/x")
    left = [after]

    def counted(name: str, owner: object) -> object:
        real = getattr(owner, name)

        def call(*arguments: object, **options: object) -> object:
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return real(*arguments, **options)

        return mock.patch.object(owner, name, call)

    with contextlib.ExitStack() as stack:
        for name, owner in (("rename", Path), ("rmtree", shutil), ("unlink", Path)):
            stack.enter_context(counted(name, owner))  # type: ignore[arg-type]
        stack.enter_context(contextlib.suppress(Crash))
        collected(cache)
    assert (cache.published_folder(KEYS["old"]) is not None) == old.exists()
    collected(cache)
    assert not old.exists()
    assert recent.exists()
    assert list(cache.trash.iterdir()) == []
    assert not cache.uses(KEYS["old"]).exists()


Make = Callable[..., Path]
VERSIONS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.tuples(st.sampled_from([published, partial]), st.floats(0, 50), st.integers(0, 2)),
)


@settings(max_examples=30, deadline=None)
@given(VERSIONS, st.sets(st.sampled_from(["a", "b", "c", "d"])))
def test_exactly_the_old_unkept_versions_go(
    tmp_path_factory: pytest.TempPathFactory, versions: dict[str, tuple[Make, float, int]], keep: set[str]
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    cache.prepare()
    folders = {
        key: make(cache, KEYS[key], age, *[f"s/{index}" for index in range(users)])
        for key, (make, age, users) in versions.items()
    }
    went = collected(cache, *(KEYS[key] for key in keep))
    gone = {key for key in KEYS if KEYS[key] in went}
    assert gone == {key for key, (_, age, _) in versions.items() if age >= 24 and key not in keep}
    assert {key for key, folder in folders.items() if folder.exists()} == set(folders) - gone
