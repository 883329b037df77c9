"""What the kit is built of: pins, and what of a wheel is taken."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from acceleratorkit import parts
from acceleratorkit.parts import Entry
from realengine import paths

PIN = re.compile(r"([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def pins(of: Path) -> dict[str, str]:
    lines = [line for line in of.read_text().splitlines() if not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found), lines
    return {parts.plain(one[1]): one[2] for one in found if one}


def test_every_wheel_is_pinned_by_hash_and_none_is_taken_twice() -> None:
    lists = {name: pins(of) for name, of in parts.LISTS.items()}
    assert lists["vllm"] == {"vllm": paths.VLLM}
    assert not set(lists["engine"]) & set(lists["base"])


def test_packages_have_the_versions_with_which_the_engine_runs_on_a_cpu() -> None:
    proven = dict(line.split("==") for line in paths.LOCK.read_text().splitlines() if "==" in line)
    proven = {parts.plain(name): version for name, version in proven.items()}
    ours = pins(parts.LISTS["engine"]) | pins(parts.LISTS["base"])
    tests = {"pytest", "pytest-asyncio", "pytest-timeout", "iniconfig", "pluggy"}
    assert {name: version for name, version in ours.items() if name in proven} == {
        name: proven[name] for name in ours if name in proven
    }
    assert set(ours) - set(proven) <= tests


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", True),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", False),
        ("vllm/_moe_C_stable_libtorch.abi3.so", True),
        ("vllm/vllm-rs", True),
        ("vllm/third_party/deep_gemm/include/cute/arch/copy_sm100.hpp", True),
        ("vllm/third_party/flashmla/flash_mla_interface.py", False),
        ("vllm/_C_stable_libtorch.abi3.so", False),
        ("vllm/config/vllm.py", False),
    ],
)
def test_what_is_cut_of_vllm(name: str, cut: bool) -> None:
    assert bool(parts.CUT.search(name)) is cut


def test_a_wheel_is_unzipped_as_pip_installs_it_but_for_scripts(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("a/__init__.py", "a-1.data/purelib/b.py", "a-1.data/scripts/c", "a-1.dist-info/METADATA"):
            archive.writestr(name, name)
    names = {entry.name for entry in parts.unzipped(wheel, "site")}
    assert names == {"site/a/__init__.py", "site/b.py", "site/a-1.dist-info/METADATA"}


def test_the_same_files_make_the_same_part(tmp_path: Path) -> None:
    entries = [Entry("b", b"2"), Entry("a", b"1", True)]
    first = parts.write(tmp_path / "1.tar.xz", entries)
    second = parts.write(tmp_path / "2.tar.xz", entries[::-1])
    assert first["sha256"] == second["sha256"]
    assert first["unpacked"] == 2


def test_what_runs_there_is_taken_along() -> None:
    names = {entry.name for entry in parts.own()}
    for needed in (
        "tree/pyproject.toml", "tree/dev/acceleratorkit/program.py", "tree/dev/payloadbench/server.py",
        "tree/operator/speculative_operator/payload/speculative_worker.py", "tree/tests/vllm/resting.py",
        "tree/dev/data/models/target/tokenizer.json",
    ):  # fmt: skip
        assert needed in names
    assert not [name for name in names if "/.venv" in name or "__pycache__" in name or name.startswith("tree/build")]


def test_a_part_is_packed_once_for_the_same_wheels(tmp_path: Path) -> None:
    packed: list[int] = []

    def entries() -> list[Entry]:
        packed.append(1)
        return [Entry("a", b"1")]

    wheel, out = tmp_path / "a.whl", tmp_path / "engine.tar.xz"
    wheel.write_bytes(b"1")
    first = parts.part_of(out, tmp_path, [wheel], entries)
    out.unlink()
    assert parts.part_of(out, tmp_path, [wheel], entries) == first
    assert (parts.digest(out), len(packed)) == (first["sha256"], 1)
    wheel.write_bytes(b"2")
    parts.part_of(out, tmp_path, [wheel], entries)
    assert len(packed) == 2
