"""Words that others know this product by: in alerts, dashboards, scripts, policies and stored objects.

A word that changes breaks what its users wrote, without an error anywhere. So each stands in words.yaml too; one that
goes or changes is a decision (docs/decisions), one that is new is written there.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from speculative_operator import api
from speculative_operator.api.wire import Rule
from speculative_operator.domain import names
from speculative_operator.domain.reasons import ConditionType, Reason

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def words() -> dict[str, list[str]]:
    own = (value for name, value in vars(names).items() if name.isupper() and isinstance(value, str))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    told, _, operators = page.partition("## The operator's own\n")
    return {
        "labels and annotations": sorted(value for value in own if value.startswith(f"{names.GROUP}/")),
        "conditions": sorted(one.value for one in ConditionType),
        "reasons": sorted(one.value for one in Reason),
        "rules": sorted({one.id for one in every_rule()}),
        "series of the operator": sorted(re.findall(r"^\| `([a-z0-9_]+)` \|", operators, re.MULTILINE)),
        "series of the payload": sorted(set(re.findall(r"`(speculative_payload_[a-z_]*[a-z])", told))),
    }


def every_rule() -> Iterator[Rule]:
    for module in pkgutil.iter_modules(api.__path__, f"{api.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (
                one for one in (value if isinstance(value, list | tuple) else (value,)) if isinstance(one, Rule)
            )


def test_every_word_is_as_others_know_it() -> None:
    known = yaml.safe_load((HERE / "words.yaml").read_text(encoding="utf-8"))
    assert words() == known
