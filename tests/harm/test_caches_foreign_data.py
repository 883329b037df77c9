"""Harm: a fetch removes models that other people, namespaces or clusters keep on the same volume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speculative_operator.domain.reasons import Reason
from speculative_operator.own_folder import FOLDER, MARKER
from speculative_operator.weights.bring import Stopped
from speculative_operator.weights.cache import GRACE_SECONDS, Cache, collect
from speculative_operator.weights.command import RENEW_SECONDS, hold
from speculative_operator.weights.source import WeightsError

DAY = 86400.0
LONG_AGO = 1_000_000_000.0


def fetch(tmp_path: Path, model: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """`speculative-weights fetch` of a model that lies in a claim, into the volume `volume`."""
    source = tmp_path / "claims" / "source" / model
    source.mkdir(parents=True, exist_ok=True)
    (source / "config.json").write_text(json.dumps({"architectures": [model]}))
    command = [
        sys.executable, "-m", "speculative_operator.weights", "fetch", "--cache", str(tmp_path / "volume"),
        "--verifier", f"pvc://source/{model}", "--claims-at", str(tmp_path / "claims"), *words,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, json.loads(ended.stdout.strip().splitlines()[-1]), ended.stderr


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    return made


def written(root: Path, *paths: str) -> dict[str, bytes]:
    """Files of others, of long ago."""
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(path.encode())
    aged(root)
    return contents(root)


def aged(root: Path) -> None:
    for path in [*root.rglob("*")]:
        os.utime(path, (LONG_AGO, LONG_AGO))


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_fetch_never_deletes_foreign_folders(tmp_path: Path, volume: Path) -> None:
    """The layout of most shares of models: everybody's lie below models/."""
    key = "0123456789abcdef"
    theirs = written(
        volume, "models/llama-70b/model.safetensors", "models/team-b/qwen/w.bin", "partial/my-results/a",
        "trash/keep-me/a", f"models/{key}/model.safetensors", f"uses/{key}/somebody", f"partial/{key}/files/a",
    )  # fmt: skip
    for words in ((), ("--collect", "--grace", "0")):
        status, told, err = fetch(tmp_path, "m", *words)
        assert (status, told["removed"]) == (0, []), err
        assert theirs.items() <= contents(volume).items()


@pytest.mark.parametrize("cause", ["folder", "file", "link", "marker"])
def test_a_folder_by_our_name_that_we_did_not_make_is_refused_before_the_first_byte(
    tmp_path: Path, volume: Path, cause: str
) -> None:
    own = volume / FOLDER
    if cause == "file":
        own.write_text("theirs")
    elif cause == "link":
        (tmp_path / "elsewhere").mkdir()
        own.symlink_to(tmp_path / "elsewhere")
    else:
        written(volume, f"{FOLDER}/models/mine/a")
        if cause == "marker":
            (own / MARKER).write_text('{"kind": "compiled", "format": 1}')
    before = contents(volume)
    status, told, _ = fetch(tmp_path, "m", "--collect", "--grace", "0")
    assert status == 3, "another try would end in the same way"
    assert told["error"]["reason"] == Reason.CACHE_FOREIGN
    assert FOLDER in told["error"]["message"]
    assert "spec.weights.cache" in told["error"]["remedy"]
    assert contents(volume) == before
    assert [path.name for path in volume.iterdir()] == [FOLDER]


def test_what_others_put_into_our_folder_is_never_deleted(tmp_path: Path, volume: Path) -> None:
    place = Cache(volume)
    place.prepare()
    key, other = "0123456789abcdef", "f" * 16
    theirs = written(
        place.home, "models/notes/a", f"models/{key}/no-manifest", f"partial/{key}/files/a", f"partial/{key}/mine",
        "trash/keep-me/a", f"trash/models-{key}/a", "uses/me/a",
    )  # fmt: skip
    (place.model(other)).symlink_to(tmp_path)
    copied = place.home / "models" / "copy"
    copied.mkdir()
    (copied / ".speculative.json").write_text("{}")
    aged(place.home)
    assert fetch(tmp_path, "m", "--collect", "--grace", "0")[1]["removed"] == []
    assert theirs.items() <= contents(place.home).items()
    assert place.model(other).is_symlink()
    assert copied.exists()


def mark_ages(volume: Path, days: float) -> None:
    for path in [*(volume / FOLDER / "uses").rglob("*"), *(volume / FOLDER / "models").iterdir()]:
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_nothing_is_removed_unless_asked_for(tmp_path: Path, volume: Path) -> None:
    key = fetch(tmp_path, "x", "--collect", "--object", "team-b/chat/1")[1]["verifier"]["key"]
    mark_ages(volume, 1000)
    assert fetch(tmp_path, "y", "--object", "team-a/code/2")[1]["removed"] == []
    assert Cache(volume).published_folder(key) is not None


def test_a_fetch_never_removes_what_an_object_brought_that_did_not_agree(tmp_path: Path, volume: Path) -> None:
    """Two namespaces, or two clusters, share a volume; one of them has collect, the other has not."""
    key = fetch(tmp_path, "x", "--object", "team-b/chat/1")[1]["verifier"]["key"]
    mark_ages(volume, 1000)
    assert fetch(tmp_path, "y", "--object", "team-a/code/2", "--collect", "--grace", "0")[1]["removed"] == []
    assert Cache(volume).published_folder(key) is not None
    assert fetch(tmp_path, "x", "--object", "team-b/chat/3", "--collect")[0] == 0
    mark_ages(volume, 1000)
    assert fetch(tmp_path, "y", "--object", "team-a/code/2", "--collect", "--grace", "0")[1]["removed"] == []


def test_a_pod_that_runs_never_loses_its_version_to_another_namespace(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: float) -> None:
        raise Stopped

    key = fetch(tmp_path, "x", "--object", "team-b/chat/1", "--collect")[1]["verifier"]["key"]
    mark_ages(volume, 31)
    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(Stopped):
        hold(volume, (key,), "team-b/chat/1", expires=True)
    monkeypatch.undo()
    assert fetch(tmp_path, "y", "--object", "team-a/code/2", "--collect")[1]["removed"] == []
    assert Cache(volume).published_folder(key) is not None
    assert RENEW_SECONDS * 100 < GRACE_SECONDS


@pytest.mark.parametrize("hours", [-2.0, 2.0, 72.0])
def test_a_suspended_job_never_removes_by_a_stale_list(tmp_path: Path, volume: Path, hours: float) -> None:
    """Objects that came since it was made are not in its list."""
    key = fetch(tmp_path, "x", "--object", "ns/old/1", "--collect")[1]["verifier"]["key"]
    mark_ages(volume, 31)
    listed = f"{time.time() - hours * 3600:.0f}"
    assert fetch(tmp_path, "y", "--collect", "--listed-at", listed)[1]["removed"] == []
    fresh = f"{time.time():.0f}"
    assert fetch(tmp_path, "z", "--collect", "--listed-at", fresh)[1]["removed"] == [key]


def test_a_collection_that_fails_never_fails_the_fetch(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share may let a Job add files and forbid it to remove those of another user id."""
    from speculative_operator.weights import command

    def forbidden(*_: object, **__: object) -> tuple[str, ...]:
        raise WeightsError(Reason.CACHE_UNWRITABLE, "not permitted")

    monkeypatch.setattr(command, "collect", forbidden)
    options = type("Options", (), {"collect": True, "listed_at": None, "cache": volume, "grace": 0.0})
    assert command._collect(options, set()) == ()  # type: ignore[arg-type]


def test_two_that_prepare_at_once_never_refuse_each_other(volume: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def prepared(place: Callable[[], None]) -> None:
        start.wait()
        try:
            place()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=prepared, args=(Cache(volume).prepare,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert collect(volume, grace=-1) == ()
