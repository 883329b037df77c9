"""The kit's parts on the machine that measures: what is wrong with one is told, and what helps."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from acceleratorkit import parts, unpack
from acceleratorkit.parts import Entry
from acceleratorkit.unpack import KitError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A small one: packages of ours, and a base of one that is here (pytest) and one that is not."""
    folder = tmp_path / "kit"
    folder.mkdir()
    engine = parts.write(folder / "engine.tar.xz", [Entry("site/engine.py", b"1"), Entry("tree/x.sh", b"2", True)])
    base = parts.write(
        folder / "base.tar.xz", [Entry("base/pytest/pytest.py", b"3"), Entry("base/not-here/not_here.py", b"4")]
    )
    told = {"format": unpack.FORMAT, "parts": [engine, {**base, "packages": ["pytest", "not-here"]}]}
    (folder / unpack.MANIFEST).write_text(json.dumps(told))
    return folder


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*.*") if path.is_file() and path.name[0] != "."}


def test_files_are_unpacked_once_and_packages_of_the_machine_are_kept(kit: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    unpack.unpack(kit, home)
    assert files(home) == {"site/engine.py", "tree/x.sh", "site/not_here.py"}
    assert (home / "tree" / "x.sh").stat().st_mode & 0o100
    (home / "site" / "engine.py").unlink()
    unpack.unpack(kit, home)
    assert files(home) == {"tree/x.sh", "site/not_here.py"}


def test_all_of_the_kits_own_packages_are_taken_where_asked(kit: Path, tmp_path: Path) -> None:
    unpack.unpack(kit, tmp_path / "home", all_ours=True)
    assert files(tmp_path / "home") == {"site/engine.py", "tree/x.sh", "site/not_here.py", "site/pytest.py"}


def test_parts_may_come_one_after_another(kit: Path, tmp_path: Path) -> None:
    home, aside = tmp_path / "home", tmp_path / "aside"
    (kit / "base.tar.xz").rename(aside)
    with pytest.raises(KitError, match=r"missing beside run.sh: base.tar.xz; .*--bring"):
        unpack.unpack(kit, home)
    unpack.unpack(kit, home, bring=True)
    (kit / "engine.tar.xz").unlink()
    aside.rename(kit / "base.tar.xz")
    unpack.unpack(kit, home)
    assert "site/not_here.py" in files(home)


def test_a_base_of_which_everything_is_here_may_be_missing(kit: Path, tmp_path: Path) -> None:
    told = json.loads((kit / unpack.MANIFEST).read_text())
    told["parts"][1]["packages"] = ["pytest"]
    (kit / unpack.MANIFEST).write_text(json.dumps(told))
    (kit / "base.tar.xz").unlink()
    unpack.unpack(kit, tmp_path / "home")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda data: data[:-10], r"has \d+ bytes instead of \d+: it was cut off, copy it again"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), r"differs from the one that was built \(sha256\)"),
    ],
)
def test_a_part_that_is_not_the_one_that_was_built(harm: Any, told: str, kit: Path, tmp_path: Path) -> None:
    part = kit / "engine.tar.xz"
    part.write_bytes(harm(part.read_bytes()))
    with pytest.raises(KitError, match=told):
        unpack.unpack(kit, tmp_path / "home")


def test_a_part_that_was_built_broken(kit: Path, tmp_path: Path) -> None:
    part, told = kit / "engine.tar.xz", json.loads((kit / unpack.MANIFEST).read_text())
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    told["parts"][0] |= {"sha256": parts.digest(part), "bytes": part.stat().st_size}
    (kit / unpack.MANIFEST).write_text(json.dumps(told))
    with pytest.raises(KitError, match=r"is broken .*copy it again"):
        unpack.unpack(kit, tmp_path / "home")


def test_a_disk_that_is_full_before(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 0))
    with pytest.raises(KitError, match=r"home is full .*name another folder with --home"):
        unpack.unpack(kit, tmp_path / "home")


def test_a_disk_that_becomes_full(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tarfile.TarFile.extract", full)
    with pytest.raises(KitError, match="is full"):
        unpack.unpack(kit, tmp_path / "home")
    monkeypatch.undo()
    unpack.unpack(kit, tmp_path / "home")
    assert "site/engine.py" in files(tmp_path / "home"), "a part that was not unpacked whole is unpacked again"


@pytest.mark.parametrize("text", ["", "{}", '{"format": 0}'])
def test_a_manifest_that_says_nothing(text: str, kit: Path, tmp_path: Path) -> None:
    (kit / unpack.MANIFEST).write_text(text)
    with pytest.raises(KitError, match=r"manifest\.json"):
        unpack.unpack(kit, tmp_path / "home")


def test_a_machine_without_what_it_must_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "PYTHON", sys.version_info[:2])
    monkeypatch.setattr(unpack, "MACHINE", {"no_torch": "torch 2.11"})
    with pytest.raises(KitError, match=r"has no no_torch: the machine must bring torch 2\.11"):
        unpack.machine()
    monkeypatch.setattr(unpack, "PYTHON", (3, 1))
    with pytest.raises(KitError, match=r"PYTHON=python3\.12"):
        unpack.machine()


def test_a_package_that_cannot_be_imported(tmp_path: Path) -> None:
    with pytest.raises(KitError, match=r"No module named 'vllm'.*--all-ours"):
        unpack.imports(tmp_path)


def test_engines_find_what_was_unpacked_after_what_they_are_given(tmp_path: Path) -> None:
    unpack.wrap(tmp_path)
    code = "import os; print(os.environ['PYTHONPATH'])"
    for given, found in (({}, str(tmp_path / "site")), ({"PYTHONPATH": "/given"}, f"/given:{tmp_path / 'site'}")):
        ran = subprocess.run(
            [tmp_path / "bin" / "python", "-c", code], env=given, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == found


def test_run_sh_tells_what_is_wrong(kit: Path, tmp_path: Path) -> None:
    for name in ("run.sh", "unpack.py"):
        shutil.copy(parts.HERE / name, kit)
    ran = subprocess.run(
        [kit / "run.sh", "--home", tmp_path / "home"], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.startswith("the kit cannot run: ")
    ran = subprocess.run(
        [kit / "run.sh"], capture_output=True, text=True, check=False, env={"PATH": "/bin", "PYTHON": "no"}
    )
    assert (ran.returncode, ran.stderr) == (2, "no is not there; name one with PYTHON=/path/to/python3.12\n")
