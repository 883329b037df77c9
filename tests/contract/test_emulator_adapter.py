"""What the vLLM adapter renders, the emulator starts; and both, written apart, hold the same of each method."""

from __future__ import annotations

import pytest
from tests.unit.engines.building import SMALL_QWEN, spec

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.config import EngineConfig, engine_config, server_config
from speculative_lab.emulator.settings import Settings
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for

METHODS = [None, *Method]


def deployment(method: Method | None, mode: Mode) -> DeploymentSpec:
    source = SMALL_QWEN if method is Method.DRAFT_MODEL else ...
    return spec(method, source=source, mode=mode, num_speculative_tokens=3)


def started(deployed: DeploymentSpec) -> EngineConfig:
    """Configuration of the emulator under the container's arguments and environment, booted once."""
    container = engine_for(deployed).container(resolve(deployed), KTable.constant(3, 256))
    variables = {entry["name"]: entry.get("value", "") for entry in container.env}
    namespace = parse(["serve", *container.args])
    assert server_config(namespace, variables).shutdown_timeout > 0
    config = engine_config(namespace, variables, Settings())
    build_core(config, Settings())
    return config


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.STATIC, Mode.DISABLED])
@pytest.mark.parametrize("method", METHODS)
def test_every_rendered_command_line_starts(method: Method | None, mode: Mode) -> None:
    config = started(deployment(method, mode))
    assert (config.speculative is not None) == (method is not None and mode is not Mode.DISABLED)
    if config.speculative is not None:
        assert config.speculative.method == method
