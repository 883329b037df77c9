"""The golden cases: objects as users write them, with what an engine and the templates make of each.

`inputs/*.yaml` holds one object a file, `cases/*.yaml` many: a document is a case with `name`, the object's `spec` and
what else decides (`table`, `tableVersion`, `capabilities`, `catalogue`, `canary`). Read by the tests beside this file
and by tests/vllm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KnobSpace, KTable
from speculative_operator.engines import pairs
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.catalogue import catalogue_of
from speculative_operator.reconcile.children.desired import strategy_at_rest
from speculative_operator.render import Capabilities, RenderInput, render
from speculative_operator.render.targets import target_of

HERE = Path(__file__).parent
INPUTS = sorted((HERE / "inputs").glob("*.yaml"))
FAMILIES = sorted((HERE / "cases").glob("*.yaml"))


@dataclass(frozen=True)
class Case:
    """One object, and what decides beside it."""

    body: dict[str, Any]
    more: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @cached_property
    def spec(self) -> ResolvedSpec:
        metadata = {"namespace": "models", "uid": "0e7b5d1c-5a4f-4f0e-9d52-6f0c8a3a2b11", "generation": 1}
        spec = to_domain(self.body | {"metadata": self.body["metadata"] | metadata})
        return resolve(self._picked(spec) if spec.auto_speculator else spec)

    def _picked(self, spec: DeploymentSpec) -> DeploymentSpec:
        """With the speculator that the case's rows have for its verifier, as the operator would."""
        choice = pairs.choose(spec, catalogue_of(self.more["catalogue"], self.name))
        return pairs.with_entry(spec, choice.entry) if choice.entry is not None else spec

    @property
    def engine(self) -> Engine:
        return engine_for(self.spec)

    @cached_property
    def knobs(self) -> KnobSpace:
        return self.engine.knobs(self.spec)

    @property
    def table(self) -> KTable | None:
        return KTable.from_rows(self.more["table"]) if "table" in self.more else None

    @cached_property
    def container(self) -> EngineContainer:
        return self.engine.container(self.spec, self.table or KTable.constant(0, self.knobs.max_batch))

    def children(self) -> tuple[dict[str, Any], ...]:
        """Every manifest, as it is applied."""
        capabilities = Capabilities(**self.more.get("capabilities", {}))
        rendered = render(
            RenderInput(
                spec=self.spec,
                container=self.container,
                table=self.table,
                table_version=self.more.get("tableVersion", 1),
                capabilities=capabilities,
                canary=self.more.get("canary", ""),
                strategy=strategy_at_rest(self.spec),
            )
        )
        target = target_of(self.spec)
        written = (target.write(self.spec, one) if one["kind"] == "Deployment" else (one,) for one in rendered)
        return tuple(one for objects in written for one in objects)


def whole(source: Path) -> Case:
    """The case of one file of `inputs/`."""
    body, *rest = yaml.safe_load_all(source.read_text())
    return Case(body, rest[0] if rest else {})


@cache
def family(source: Path) -> tuple[Case, ...]:
    """The cases of one file of `cases/`, read once."""
    return tuple(
        Case(
            {"metadata": {"name": document["name"]}, "spec": document["spec"]},
            {key: value for key, value in document.items() if key not in ("name", "spec")},
        )
        for document in yaml.safe_load_all(source.read_text())
    )


@cache
def every() -> tuple[Case, ...]:
    """All of them, read once."""
    return (*map(whole, INPUTS), *(case for source in FAMILIES for case in family(source)))
