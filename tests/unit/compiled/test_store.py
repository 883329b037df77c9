"""Compiled code on a shared volume: all of it or none, whatever was killed, torn, full or foreign."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.certificates import server_context

from speculative_operator.compiled import store as store_module
from speculative_operator.compiled.__main__ import machine
from speculative_operator.compiled.keep import Watch, _healthy, keep
from speculative_operator.compiled.seed import MARK, seed
from speculative_operator.compiled.store import Store, TornError, list_files
from speculative_operator.own_folder import FOLDER

KEY = "0123456789abcdef-01234567"
OLD, USED, *MANY = (f"{number:016x}-01234567" for number in range(7))
FOLDERS = ("vllm/torch_compile_cache", "triton")
FILES = {"vllm/torch_compile_cache/h/rank_0_0/model": b"m" * 5000, "triton/K/kernel.cubin": b"k" * 300}


class OverError(Exception):
    """Ends the wait that never ends."""


def written(root: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {one.path: (root / one.path).read_bytes() for one in list_files(root, FOLDERS)}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


@pytest.fixture
def store(volume: Path) -> Store:
    return Store(volume, KEY)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return written(tmp_path / "engine")


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    (tmp_path / "fresh").mkdir()
    return tmp_path / "fresh"


def test_a_second_pod_gets_what_the_first_compiled(store: Store, engine: Path, fresh: Path) -> None:
    generation = store.publish(engine, FOLDERS, "pod")
    assert seed(store, fresh, FOLDERS) == generation
    assert content(fresh) == FILES
    assert (fresh / MARK).read_text() == generation
    for path in (fresh / "vllm", fresh / "vllm/torch_compile_cache/h", fresh / "triton/K/kernel.cubin"):
        assert path.stat().st_mode & 0o006 == 0o006, "the engine may have another user id"


def test_only_compiled_code_is_kept(store: Store, engine: Path) -> None:
    written(engine, {"huggingface/model.safetensors": b"w", "vllm/modelinfos/x": b"i", "triton/K/a.lock": b""})
    (engine / "triton/link").symlink_to("/etc/passwd")
    assert {one.path for one in store.entries(store.publish(engine, FOLDERS, "pod"))} == set(FILES)


def test_nothing_new_is_not_published_again(store: Store, engine: Path, fresh: Path) -> None:
    assert store.publish(engine, FOLDERS, "one")
    assert store.publish(engine, FOLDERS, "two") == ""
    seed(store, fresh, FOLDERS)
    assert store.publish(fresh, FOLDERS, "three") == ""
    written(fresh, {"triton/L/kernel.cubin": b"more"})
    assert store.publish(fresh, FOLDERS, "four") != ""
    store.collect()
    assert len(store.generations()) == 1, "the newest holds what those before it held"
    assert len(store.entries(store.generations()[0])) == 3


def test_keys_share_nothing(volume: Path, engine: Path, fresh: Path) -> None:
    Store(volume, "one").publish(engine, FOLDERS, "pod")
    assert seed(Store(volume, "two"), fresh, FOLDERS) == ""
    assert content(fresh) == {}


@pytest.mark.parametrize("victim", ["files/triton/K/kernel.cubin", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_what_is_torn_reaches_no_engine(store: Store, engine: Path, fresh: Path, victim: str, harm: str) -> None:
    generation = store.publish(engine, FOLDERS, "pod")
    file = store.root / "compiled" / KEY / generation / victim
    raw = file.read_bytes()
    if harm == "remove":
        file.unlink()
    else:
        file.write_bytes(raw[: len(raw) // 2] if harm == "truncate" else bytes([raw[0] ^ 1]) + raw[1:])
    assert seed(store, fresh, FOLDERS) == ""
    assert list(fresh.iterdir()) == []
    assert store.generations() == [], "no other pod tries it"


@pytest.mark.parametrize("path", ["/etc/cron.d/x", "../../x", "triton/../../x", ""])
def test_no_manifest_writes_elsewhere(store: Store, engine: Path, fresh: Path, path: str) -> None:
    generation = store.publish(engine, FOLDERS, "pod")
    (store.root / "compiled" / KEY / generation / "manifest.json").write_text(f'[["{path}", 0, ""]]')
    with pytest.raises(TornError):
        store.entries(generation)
    assert seed(store, fresh, FOLDERS) == ""


def test_an_older_generation_serves_where_the_newest_is_torn(store: Store, engine: Path, fresh: Path) -> None:
    first = store.publish(engine, FOLDERS, "one")
    written(engine, {"triton/L/x": b"x"})
    second = store.publish(engine, FOLDERS, "two")
    (store.root / "compiled" / KEY / second / "files/triton/L/x").write_bytes(b"y")
    assert seed(store, fresh, FOLDERS) == first
    assert content(fresh) == FILES


def test_folders_that_an_engine_has_are_left_as_they_are(store: Store, engine: Path, fresh: Path) -> None:
    store.publish(engine, FOLDERS, "pod")
    written(fresh, {"triton/own": b"own"})
    assert seed(store, fresh, FOLDERS) == ""
    assert content(fresh) == {"triton/own": b"own"}


def test_a_generation_that_comes_while_the_one_before_goes_is_taken(
    store: Store, engine: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(engine, FOLDERS, "old")
    copied = store_module._copy
    came: list[str] = []

    def overtaken(source: Path, target: Path, **more: Any) -> tuple[int, str]:
        if not came:
            came.append("")
            came[0] = store.publish(written(engine, {"triton/K/more": b"m"}), FOLDERS, "new")
            store.collect()
        return copied(source, target, **more)

    monkeypatch.setattr(store_module, "_copy", overtaken)
    assert seed(store, fresh, FOLDERS) == came[0]
    assert content(fresh) == content(engine)


def test_a_seed_that_is_killed_halfway_is_known_for_what_it_is(
    store: Store, engine: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = store.publish(engine, FOLDERS, "pod")
    rename, turns = Path.rename, iter([True])

    def killed(self: Path, target: Path) -> Path:
        if self.is_relative_to(fresh) and next(turns, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        seed(store, fresh, FOLDERS)
    monkeypatch.undo()
    assert 0 < len(content(fresh)) < len(FILES)
    assert seed(store, fresh, FOLDERS) == "", "the second run of the init container"
    with pytest.raises(OverError):
        keep(watch(store, fresh, "http://127.0.0.1:9/health", patience=-1.0), ends(3))
    assert content(fresh) == {}
    assert generation not in store.generations()


def test_a_full_volume_is_tidied_up_and_tried_again(
    volume: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(volume, OLD).publish(engine, FOLDERS, "pod")
    Store(volume, OLD).use()
    os.utime(volume / FOLDER / "uses" / OLD, (0, 0))
    copied = store_module._copy

    def full(source: Path, target: Path, **more: Any) -> tuple[int, str]:
        if (volume / FOLDER / "compiled" / OLD).exists():
            raise OSError(28, "No space left on device")
        return copied(source, target, **more)

    monkeypatch.setattr(store_module, "_copy", full)
    monkeypatch.setattr("speculative_operator.compiled.keep._healthy", lambda _: True)
    with pytest.raises(OverError):
        keep(watch(Store(volume, KEY), engine, "", patience=60.0), ends(1))
    assert Store(volume, KEY).generations() != []


def test_files_that_change_while_they_are_read_are_not_published(
    store: Store, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = store_module._copy

    def touched(source: Path, target: Path, **more: Any) -> tuple[int, str]:
        found = copied(source, target, **more)
        (engine / "triton/K/late").write_bytes(b"l")
        return found

    monkeypatch.setattr(store_module, "_copy", touched)
    with pytest.raises(TornError, match="changed"):
        store.publish(engine, FOLDERS, "pod")
    assert store.generations() == []
    assert list((store.root / "partial").iterdir()) == []


def test_a_full_disk_publishes_nothing_and_leaves_nothing(
    store: Store, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "_copy", full)
    with pytest.raises(OSError, match="No space"):
        store.publish(engine, FOLDERS, "pod")
    assert store.generations() == []
    assert list((store.root / "partial").iterdir()) == []


def test_a_volume_that_is_not_there_is_no_failure(tmp_path: Path, fresh: Path) -> None:
    assert seed(Store(tmp_path / "absent", KEY), fresh, FOLDERS) == ""
    (tmp_path / "file").write_text("x")
    assert seed(Store(tmp_path / "file", KEY), fresh, FOLDERS) == ""
    assert list(fresh.iterdir()) == []


def _publishes(volume: Path, engine: Path, number: int) -> None:
    for turn in range(20):
        written(engine, {f"triton/{number}/{turn}": os.urandom(2000)})
        store = Store(volume, KEY)
        store.publish(engine, FOLDERS, f"pod-{number}")
        store.collect()


def test_many_writers_and_readers_never_see_half(volume: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_publishes, args=(volume, written(tmp_path / f"engine-{number}"), number))
        for number in range(3)
    ]
    for writer in writers:
        writer.start()
    seeded = turn = 0
    while any(writer.is_alive() for writer in writers):
        turn += 1
        fresh = tmp_path / f"fresh-{turn}"
        fresh.mkdir()
        if seed(Store(volume, KEY), fresh, FOLDERS):
            seeded += 1
            assert FILES.items() <= content(fresh).items()
        else:
            assert content(fresh) == {}
        shutil.rmtree(fresh)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seeded > 0


def _killed_while_publishing(volume: Path, engine: Path) -> None:
    Store(volume, KEY).publish(engine, FOLDERS, "pod")


def test_a_writer_that_is_killed_leaves_nothing_to_read(volume: Path, tmp_path: Path, fresh: Path) -> None:
    engine = written(tmp_path / "engine", {f"triton/{number}": os.urandom(200_000) for number in range(200)})
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_killed_while_publishing, args=(volume, engine))
    writer.start()
    while not list(volume.glob(f"{FOLDER}/partial/*/files/triton/*")) and writer.is_alive():
        time.sleep(0.001)
    writer.kill()
    writer.join()
    found = seed(Store(volume, KEY), fresh, FOLDERS)
    assert content(fresh) == (content(engine) if found else {})


def test_old_keys_go_and_used_ones_stay(volume: Path, engine: Path) -> None:
    now = time.time()
    for name, days in ((USED, 1.0), (OLD, 8.0), (KEY, 0.0)):
        one = Store(volume, name)
        one.publish(engine, FOLDERS, "pod")
        one.use()
        os.utime(volume / FOLDER / "uses" / name, (now - days * 86400,) * 2)
    left = volume / FOLDER / "partial" / f"{OLD}.{time.time_ns():020d}-pod"
    left.mkdir()
    os.utime(left, (now - 2 * 86400,) * 2)
    assert Store(volume, KEY).collect() == (OLD,)
    assert {one.name for one in (volume / FOLDER / "compiled").iterdir()} == {USED, KEY}
    assert list((volume / FOLDER / "partial").iterdir()) == []
    assert list((volume / FOLDER / "trash").iterdir()) == []


def test_no_more_keys_than_so_many(volume: Path, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_KEYS", 3)
    for number in range(5):
        one = Store(volume, MANY[number])
        one.publish(engine, FOLDERS, "pod")
        one.use()
        os.utime(volume / FOLDER / "uses" / MANY[number], (time.time() - (2 + number) * 86400,) * 2)
    assert Store(volume, MANY[0]).collect() == (MANY[3], MANY[4])


# -- beside the engine


def watch(store: Store, target: Path, health: str, patience: float) -> Watch:
    return Watch(store, target, FOLDERS, health, patience, "pod", quiet=0.0, second_look=0.0, poll=0.0)


def ends(after: int) -> Any:
    turns = iter(range(after))

    def pause(_: float) -> None:
        if next(turns, None) is None:
            raise OverError

    return pause


def test_an_engine_that_answers_by_https_is_healthy_too(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    server.socket = server_context(tmp_path).wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.handle_request, daemon=True)
    thread.start()
    try:
        assert _healthy(f"https://127.0.0.1:{server.server_port}/")
    finally:
        thread.join()
        server.server_close()


def test_what_never_leads_to_a_healthy_engine_is_taken_away(store: Store, engine: Path, fresh: Path) -> None:
    seed_of = store.publish(engine, FOLDERS, "pod")
    seed(store, fresh, FOLDERS)
    with pytest.raises(OverError):
        keep(watch(store, fresh, "http://127.0.0.1:9/health", patience=-1.0), ends(3))
    assert content(fresh) == {}
    assert seed_of not in store.generations()


def test_an_engine_that_compiles_itself_keeps_what_it_has(store: Store, engine: Path) -> None:
    with pytest.raises(OverError):
        keep(watch(store, engine, "http://127.0.0.1:9/health", patience=-1.0), ends(3))
    assert content(engine) == FILES
    assert store.generations() == [], "nothing is published of an engine that never served"


def test_it_publishes_once_the_engine_serves(store: Store, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculative_operator.compiled.keep._healthy", lambda _: True)
    with pytest.raises(OverError):
        keep(watch(store, engine, "", patience=60.0), ends(5))
    assert len(store.generations()) == 1
    assert (store.root / "uses" / KEY).exists()


def test_a_volume_that_cannot_be_written_ends_nothing(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr("speculative_operator.compiled.keep._healthy", lambda _: True)
    with pytest.raises(OverError):
        keep(watch(Store(tmp_path / "file", KEY), engine, "", patience=60.0), ends(5))
    assert content(engine) == FILES


# -- the kind of node


def node(root: Path, **files: str) -> Path:
    for path, text in files.items():
        file = root / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_nodes_of_one_kind_are_told_from_others(tmp_path: Path) -> None:
    cpu = "processor : 0\nmodel name : A\nflags : avx2 fma\ncpu MHz : {}\n\nprocessor : 1\nmodel name : B\n"
    one = machine(node(tmp_path / "1", proc__cpuinfo=cpu.format(2000)))
    assert one == machine(node(tmp_path / "2", proc__cpuinfo=cpu.format(3000).replace("avx2 fma", "fma avx2")))
    other = node(tmp_path / "3", proc__cpuinfo=cpu.replace("avx2", "avx512f"))
    assert len({one, machine(other), machine(tmp_path / "nothing")}) == 3
    gpus = {"proc__driver__nvidia__gpus__0__information": "Model: \t H100\nIRQ: 7\n"}
    assert machine(node(tmp_path / "1", **gpus)) != one
