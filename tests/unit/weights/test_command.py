"""The command line: arguments, results, errors that say their side."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.unit.weights.shelf import COMMIT, KIB, Shelf, content

from speculative_operator.domain.jobs import RESULT_FILE, Exit, decode, progress_of
from speculative_operator.domain.models import ModelFacts, Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights import __main__, command, disk, result
from speculative_operator.weights.cache import MANIFEST, Cache
from speculative_operator.weights.source import WeightsError

VERIFIER = Shelf({"config.json": b"{}", "model.safetensors": content(300 * KIB, 1)}, location="org/verifier")
DRAFTER = Shelf({"config.json": b"{}", "model.safetensors": content(30 * KIB, 2)}, location="org/drafter")
BOTH = ["--verifier", "hf://org/verifier", "--speculator", "hf://org/drafter"]
PINNED = [*BOTH, "--verifier-revision", COMMIT, "--speculator-revision", COMMIT]


KEPT, OTHER = (Pin(Scheme.HF, f"org/{name}", "", COMMIT) for name in ("kept", "other"))


def published(root: Path, pin: Pin, size: int = 0) -> Path:
    """A version without files, published long ago."""
    place = Cache(root)
    place.prepare()
    folder = place.model(pin.key)
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"pin": asdict(pin), "files": [], "bytes": size}))
    for path in (folder / MANIFEST, folder):
        os.utime(path, (1, 1))
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ModelSource]:
    """Sources that were asked for; each is one of the two shelves."""
    asked: list[ModelSource] = []

    def open_source(source: ModelSource, claims_at: Path | None) -> Shelf:
        asked.append(source)
        for shelf in (VERIFIER, DRAFTER):
            if shelf.location == source.location:
                return shelf
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{source.uri} is not there", status=404, remedy="correct the name")

    monkeypatch.setattr(command, "open_source", open_source)
    return asked


Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*arguments: str) -> tuple[int, list[str], str]:
        status = __main__.main(arguments)
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return ran


def test_fetch_brings_both_and_tells_what_it_did(tmp_path: Path, opened: list[ModelSource], run: Run) -> None:
    status, out, _ = run("fetch", "--cache", str(tmp_path / "new"), *PINNED, "--object", "s/o")
    assert status == 0
    assert opened == [ModelSource(Scheme.HF, f"org/{side}", COMMIT) for side in ("verifier", "drafter")]
    told = json.loads(out[-1])
    for side, shelf, size in (("verifier", VERIFIER, 300 * KIB + 2), ("speculator", DRAFTER, 30 * KIB + 2)):
        assert told[side]["key"] == shelf.pin.key
        assert told[side]["bytes"] == size
        assert told[side]["pin"]["resolved"] == COMMIT
        assert (tmp_path / "new" / FOLDER / "models" / shelf.pin.key / "config.json").read_bytes() == b"{}"
        assert (tmp_path / "new" / FOLDER / "uses" / shelf.pin.key / "s.o").exists()
    assert told["removed"] == []
    seen = [progress for line in out if (progress := progress_of(line))]
    assert {one.total for one in seen} == {330 * KIB + 4}, "both sides are one download"
    assert [one.bytes for one in seen] == sorted(one.bytes for one in seen)
    assert seen[-1].bytes == 330 * KIB + 4


def test_a_cached_side_is_not_opened(tmp_path: Path, opened: list[ModelSource], run: Run) -> None:
    run("fetch", "--cache", str(tmp_path), *PINNED[:2], "--verifier-revision", COMMIT)
    opened.clear()
    status, out, _ = run("fetch", "--cache", str(tmp_path), *PINNED)
    assert status == 0
    assert [source.location for source in opened] == ["org/drafter"]
    assert json.loads(out[-1])["verifier"]["bytes"] == 300 * KIB + 2
    mark = tmp_path / FOLDER / "uses" / VERIFIER.pin.key / "local.local"
    os.utime(mark, (1, 1))
    opened.clear()
    assert run("fetch", "--cache", str(tmp_path), *PINNED)[0] == 0
    assert opened == []
    assert time.time() - mark.stat().st_mtime < 60


def test_a_revision_may_stand_in_the_uri(tmp_path: Path, opened: list[ModelSource], run: Run) -> None:
    run("fetch", "--cache", str(tmp_path), "--verifier", "hf://org/verifier@v1.0/")
    assert opened == [ModelSource(Scheme.HF, "org/verifier", "v1.0")]


@pytest.mark.parametrize("uri", ["org/model", "gs://bucket/model", "hf://"])
def test_what_is_no_source_is_named(tmp_path: Path, run: Run, uri: str) -> None:
    status, out, err = run("fetch", "--cache", str(tmp_path), "--verifier", uri)
    assert status == Exit.FINAL
    assert uri in err
    assert json.loads(out[-1])["error"]["reason"] == "UnsupportedSource"


def test_an_error_says_its_side_and_comes_before_any_download(
    tmp_path: Path, opened: list[ModelSource], run: Run
) -> None:
    before = len(VERIFIER.asked)
    wrong = ["--verifier", "hf://org/verifier", "--speculator", "hf://org/missing"]
    status, out, err = run("fetch", "--cache", str(tmp_path), *wrong)
    assert status == Exit.FINAL
    assert err == "error: speculator: hf://org/missing is not there; correct the name\n"
    assert json.loads(out[-1]) == {
        "error": {
            "reason": "SourceNotFound", "message": "hf://org/missing is not there", "remedy": "correct the name",
            "status": 404, "side": "speculator",
        }
    }  # fmt: skip
    assert len(VERIFIER.asked) == before


def test_room_is_counted_for_both_and_made_by_collection(
    tmp_path: Path, opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = published(tmp_path, OTHER)
    for path in (old / ".speculative.json", old):
        os.utime(path, (1, 1))
    needed = 330 * KIB + 4 + (16 << 20)
    monkeypatch.setattr(disk, "free", lambda _: needed if not old.exists() else needed - 1)
    status, out, _ = run("fetch", "--cache", str(tmp_path), *PINNED, "--collect")
    assert status == 0
    assert json.loads(out[-1])["removed"] == [OTHER.key]
    monkeypatch.setattr(disk, "free", lambda _: 100)
    status, out, _ = run("fetch", "--cache", str(tmp_path), "--verifier", "hf://org/verifier")
    assert status == 0, "what is published needs no room"
    status, out, _ = run("fetch", "--cache", str(tmp_path / "new"), *PINNED)
    assert (status, json.loads(out[-1])["error"]["reason"]) == (Exit.FINAL, "CacheFull")


def test_kept_versions_and_the_pair_itself_outlive_a_collection(
    tmp_path: Path, opened: list[ModelSource], run: Run
) -> None:
    for pin in (KEPT, OTHER):
        published(tmp_path, pin)
    words = ["--collect", "--keep", KEPT.key, "--grace", "0"]
    status, out, _ = run("fetch", "--cache", str(tmp_path), *PINNED, *words)
    assert status == 0
    assert json.loads(out[-1])["removed"] == [OTHER.key]
    left = {path.name for path in (tmp_path / FOLDER / "models").iterdir()}
    assert left == {KEPT.key, VERIFIER.pin.key, DRAFTER.pin.key}


def facts(location: str, **config: Any) -> ModelFacts:
    return ModelFacts(Pin(Scheme.HF, location, "", COMMIT), config)


def test_inspect_reports_both(opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "inspect", lambda source: facts(source.location, hidden_size=64))
    status, out, _ = run("inspect", *BOTH)
    told = json.loads(out[-1])
    assert status == 0
    assert ModelFacts.from_json(told["verifier"]) == facts("org/verifier", hidden_size=64)
    assert ModelFacts.from_json(told["speculator"]) == facts("org/drafter", hidden_size=64)
    status, out, _ = run("inspect", *BOTH[:2])
    assert (status, list(json.loads(out[-1]))) == (0, ["verifier"])


def test_a_defect_leaves_a_result_and_a_traceback(
    opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(command, "inspect", lambda source: 1 // 0)
    status, out, _ = run("inspect", *BOTH)
    assert status == Exit.AGAIN
    told = json.loads(out[-1])
    assert told["error"]["reason"] == "Unknown"
    assert "ZeroDivisionError" in told["error"]["message"]
    assert "Traceback" in caplog.text


def test_a_result_that_the_termination_message_cannot_hold_is_an_error_that_says_so(
    tmp_path: Path, opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setattr(result, "TERMINATION_LOG", log)
    told = []
    for name in ("short", content(6000).hex()):
        monkeypatch.setattr(command, "inspect", lambda source, name=name: facts(source.location, name=name))
        status, _, err = run("inspect", *BOTH)
        told.append((status, decode(log.read_text()) or {}))
    assert (told[0][0], set(told[0][1])) == (Exit.DONE, {"verifier", "speculator"})
    assert (told[1][0], told[1][1]["error"]["reason"]) == (Exit.FINAL, "PairUnread")
    assert "does not fit" in err


def test_a_result_is_left_for_the_next_container_too(
    tmp_path: Path, opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESULT_FILE, str(tmp_path / "left.json"))
    _, out, _ = run("fetch", "--cache", str(tmp_path / "new"), *PINNED)
    assert json.loads((tmp_path / "left.json").read_text()) == json.loads(out[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fetch", "--verifier", "hf://a/b"],
        ["fetch", "--cache", "x"],
        ["inspect"],
        ["inspect", *BOTH[2:]],
        ["fetch", "--cache", "x", *BOTH, "--reserve", "96"],
    ],
)
def test_wrong_use_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(arguments)
    assert ended.value.code == 2
    assert "usage: speculative-weights" in capsys.readouterr().err


def test_a_speculator_alone_is_brought_and_named_as_what_it_is(
    tmp_path: Path, opened: list[ModelSource], run: Run
) -> None:
    """Where the verifier lies in a claim of the user's."""
    status, out, _ = run("fetch", "--cache", str(tmp_path), "--speculator", "hf://org/drafter")
    assert status == Exit.DONE
    assert json.loads(out[-1])["speculator"]["key"] == DRAFTER.pin.key
    assert "verifier" not in json.loads(out[-1])
    status, out, _ = run("fetch", "--cache", str(tmp_path), "--speculator", "hf://org/missing")
    assert (status, json.loads(out[-1])["error"]["side"]) == (Exit.FINAL, "speculator")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.SOURCE_UNAUTHORIZED, Exit.FINAL),
        (Reason.SOURCE_NOT_FOUND, Exit.FINAL),
        (Reason.UNSUPPORTED_SOURCE, Exit.FINAL),
        (Reason.PAIR_UNREAD, Exit.FINAL),
        (Reason.CHECKSUM_MISMATCH, Exit.FINAL),
        (Reason.CACHE_FULL, Exit.FINAL),
        (Reason.CACHE_UNWRITABLE, Exit.FINAL),
        (Reason.SOURCE_THROTTLED, Exit.AGAIN),
        (Reason.SOURCE_UNREACHABLE, Exit.AGAIN),
    ],
)
def test_the_exit_status_tells_whether_another_try_may_help(
    opened: list[ModelSource], run: Run, monkeypatch: pytest.MonkeyPatch, reason: Reason, status: Exit
) -> None:
    def inspect(source: Shelf) -> ModelFacts:
        raise WeightsError(reason, "it went wrong")

    monkeypatch.setattr(command, "inspect", inspect)
    assert run("inspect", *BOTH)[0] == status
