"""What the payload rests on of vLLM is looked for by name, and its list of names holds all that it uses."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speculative_lab.emulator import hot
from speculative_operator.payload import speculative_hooks as hooks
from speculative_operator.payload import speculative_unseen, speculative_worker
from speculative_operator.payload.speculative_telemetry import Meter


class Base:
    inherited: int


class Runner(Base):
    """vLLM's, made up."""

    declared: int = 0

    def __init__(self) -> None:
        self.plain = 1
        self.typed: int = 2

    def execute(self, plan: Any, *, dummy: bool = False) -> None:
        """Takes two."""


class Slotted:
    __slots__ = ("slot",)


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("vllm.made_up")
    module.__dict__.update(Runner=Runner, Slotted=Slotted)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.made_up", module)
    return module


def missing(members: str, name: str = "Runner", module: str = "vllm.made_up") -> str:
    return hooks.missing([(module, name, members)])


@pytest.mark.parametrize(
    "members", ["", "execute", "execute(plan,dummy)", "declared inherited plain typed", "execute(plan) plain"]
)
def test_what_is_there_is_not_missing(members: str) -> None:
    assert missing(members) == ""
    assert missing("slot", "Slotted") == ""


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ("executes", "this vLLM's vllm.made_up.Runner has no executes"),
        ("plain plainer", "this vLLM's vllm.made_up.Runner has no plainer"),
        ("execute(plan,grammar)", "this vLLM's vllm.made_up.Runner.execute takes no grammar"),
        ("run(plan)", "this vLLM's vllm.made_up.Runner has no run"),
    ],
)
def test_a_member_or_an_argument_that_was_renamed_is_named(members: str, why: str) -> None:
    assert missing(members) == why


def test_a_class_or_a_module_that_was_renamed_is_named() -> None:
    assert missing("", "Walker").startswith("this vLLM has no vllm.made_up.Walker: AttributeError")
    assert missing("", module="vllm.moved").startswith("this vLLM has no vllm.moved.Runner: ModuleNotFoundError")


def test_a_module_that_fails_is_no_error_of_ours(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("no device")

    monkeypatch.setattr(vllm, "__getattr__", broken, raising=False)
    assert "no device" in missing("", "Walker")


def test_the_first_that_is_missing_is_told() -> None:
    listed = [("vllm.made_up", "Runner", "plain"), ("vllm.made_up", "Runner", "a b"), ("vllm.gone", "Runner", "")]
    assert hooks.missing(listed).endswith("Runner has no a")


class TestRehearsal:
    """A plan without requests."""

    @pytest.fixture(autouse=True)
    def plans(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, module in hot.stand_ins().items():
            monkeypatch.setitem(sys.modules, name, module)

    def test_a_plan_that_keeps_what_is_written_on_it_passes(self) -> None:
        meter = Meter({0, 1}, varied=False)
        hooks.rehearse(meter)
        hooks.rehearse(None)
        assert (meter.cells, meter.positions) == ({}, {}), "nothing of it is counted"

    def test_one_that_loses_it_on_its_way_to_a_worker_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hot.SchedulerOutput, "make_empty", Losing)
        with pytest.raises(TypeError, match="loses"):
            hooks.rehearse(None)

    def test_one_that_takes_nothing_more_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hot.SchedulerOutput, "make_empty", Slotted)
        with pytest.raises(AttributeError):
            hooks.rehearse(None)

    def test_one_that_cannot_be_counted_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hot.SchedulerOutput, "make_empty", SimpleNamespace)
        with pytest.raises(AttributeError):
            hooks.rehearse(Meter({0, 1}, varied=False))


class Losing(SimpleNamespace):
    """A plan of which other processes get the declared fields alone."""

    speculative_off = False

    def __reduce__(self) -> Any:
        return (Losing, ())


class TestTheList:
    """Of what the worker's part uses."""

    VLLMS = frozenset({"runner", "batch", "plan", "speculator", "_runner"})
    """Names, of variables and attributes, under which the sources hold what is vLLM's."""
    OURS = frozenset({"_speculative_prepared", "speculative_catches_up", "speculative_off"})

    @pytest.mark.parametrize("module", [speculative_worker, speculative_unseen])
    def test_it_holds_every_attribute_that_is_used(self, module: ModuleType) -> None:
        used = _used(Path(str(module.__file__)).read_text(), self.VLLMS)
        assert len(used) >= 10
        assert used - _listed() - self.OURS == set()

    def test_the_test_above_finds_what_is_used(self) -> None:
        source = "runner.speculator.tokens + self._runner.rows + getattr(plan, 'wish', 0) + other.one"
        assert _used(source, self.VLLMS) == {"speculator", "tokens", "rows", "wish"}


def _listed() -> set[str]:
    members = " ".join(one[2] for one in (*hooks.SCHEDULER, *hooks.WORKER))
    return {member.partition("(")[0] for member in members.split()}


def _used(source: str, names: frozenset[str]) -> set[str]:
    """Attributes of what `names` name that a source reads, writes or asks for by getattr and its like."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and _last(node.value) in names:
            found.add(node.attr)
        if isinstance(node, ast.Call) and _last(node.func) in ("getattr", "hasattr") and _last(node.args[0]) in names:
            found.add(str(ast.literal_eval(node.args[1])))
    return found


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
