"""Harm: pods that keep compiled code on a claim remove what others keep there, or run code that others put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harm.test_caches_foreign_data import aged, contents, written

from speculative_operator.compiled.seed import seed
from speculative_operator.compiled.store import Store
from speculative_operator.own_folder import FOLDER, ForeignError

KEY = "0123456789abcdef-01234567"
FOLDERS = ("triton",)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    (tmp_path / "engine" / "triton").mkdir(parents=True)
    (tmp_path / "engine" / "triton" / "kernel.cubin").write_bytes(b"k")
    return tmp_path / "engine"


def test_compiled_code_never_pushes_out_what_others_keep_on_the_claim(tmp_path: Path, engine: Path) -> None:
    volume = tmp_path / "volume"
    store = Store(volume, KEY)
    volume.mkdir()
    store.use()
    theirs = written(
        volume, "compiled/theirs/a/b", "partial/theirs/a", "trash/theirs/a", "uses/theirs",
        f"{FOLDER}/compiled/theirs/a/b", f"{FOLDER}/partial/theirs/a", f"{FOLDER}/trash/theirs/a",
        f"{FOLDER}/compiled/{'f' * 16}-{'f' * 8}/mine/a",
    )  # fmt: skip
    assert store.publish(engine, FOLDERS, "pod")
    aged(volume / "compiled")
    assert store.collect() == ()
    assert {path: data for path, data in theirs.items() if "uses" not in path}.items() <= contents(volume).items()


def test_compiled_code_is_never_written_to_nor_read_from_a_folder_of_others(tmp_path: Path, engine: Path) -> None:
    volume, fresh = tmp_path / "volume", tmp_path / "fresh"
    fresh.mkdir()
    theirs = written(volume, f"{FOLDER}/compiled/{KEY}/00000000000000000001-x/manifest.json")
    for act in (lambda: Store(volume, KEY).publish(engine, FOLDERS, "pod"), Store(volume, KEY).use):
        with pytest.raises(ForeignError):
            act()
    assert seed(Store(volume, KEY), fresh, FOLDERS) == ""
    assert contents(volume) == theirs
    assert list(fresh.iterdir()) == []
