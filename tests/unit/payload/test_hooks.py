"""What the payload looks for in vLLM before it acts: whatever is lost or renamed is found and named."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from speculative_operator.payload import speculative_hooks as hooks
from speculative_operator.payload.speculative_telemetry import Meter


class Base:
    inherited: int = 0


class Runner(Base):
    """A class of vLLM in small."""

    declared: int = 0

    def __init__(self) -> None:
        self.pairs, self.batch = {}, None  # type: ignore[var-annotated]  # nobody reads it
        self.state = 1

    def step(self, plan: Any, *, dry: bool = False) -> None:
        """Does nothing."""


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("vllm_of_this_test")
    monkeypatch.setattr(module, "Runner", Runner, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def missing(members: str, name: str = "Runner", module: str = "vllm_of_this_test") -> str:
    return hooks.missing([(module, name, members)])


def test_what_is_there_is_found() -> None:
    assert missing("step(plan,dry) step declared inherited pairs batch state") == ""


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ("states", "has no states"),
        ("walk(plan)", "has no walk"),
        ("step(plan,wet)", ".step takes no wet"),
    ],
)
def test_what_is_lost_is_named(members: str, named: str) -> None:
    assert missing(f"declared {members}") == f"this vLLM's vllm_of_this_test.Runner {named}"


def test_a_class_or_module_that_is_gone_is_named() -> None:
    assert "vllm_of_this_test.Walker" in missing("step", name="Walker")
    assert "no_such_module_at_all.Runner" in missing("step", module="no_such_module_at_all")


@dataclass
class Plan:
    """vLLM's scheduler output in small."""

    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    num_spec_tokens_to_schedule: int = 0

    @classmethod
    def make_empty(cls) -> Plan:
        return cls()


class Forgetful(Plan):
    """One that is handed to other processes without what is written on it."""

    def __reduce__(self) -> Any:
        return Plan, ()


@pytest.mark.parametrize(("kind", "fails"), [(Plan, False), (Forgetful, True)])
def test_a_plan_must_carry_what_is_written_on_it(
    kind: type[Plan], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("output")
    monkeypatch.setattr(module, "SchedulerOutput", kind, raising=False)
    monkeypatch.setitem(sys.modules, "vllm.v1.core.sched.output", module)
    for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    if fails:
        with pytest.raises((AttributeError, TypeError)):
            hooks.rehearse(Meter({0, 1}, False))
    else:
        hooks.rehearse(Meter({0, 1}, False))
