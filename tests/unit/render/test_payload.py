"""The ConfigMap of the plug-in: complete, named by its content, and told from what anybody else has made."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from speculative_operator.domain import names
from speculative_operator.payload import FILES
from speculative_operator.render import payload

MADE = payload.payload_config("models")


def test_it_holds_the_packages_files_and_belongs_to_nobody() -> None:
    assert sorted(MADE["data"]) == sorted(FILES)
    assert "def scheduler(" in MADE["data"]["speculative_scheduler.py"]
    assert MADE["immutable"] is True
    assert MADE["metadata"]["name"] == payload.name() == payload.name_of(MADE["data"])
    assert MADE["metadata"]["labels"] == {names.LABEL_MANAGED_BY: names.OPERATOR}
    assert "ownerReferences" not in MADE["metadata"]
    assert payload.is_payload(MADE)


def test_other_content_is_another_name() -> None:
    assert payload.name_of({**payload.files(), "more.py": ""}) != payload.name()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("data", {"data": {"speculative_scheduler.py": "print('mine')"}}),
        ("data of another kind", {"data": None}),
        ("immutable", {"immutable": False}),
        ("label", {"metadata": {**MADE["metadata"], "labels": {}}}),
        ("name", {"metadata": {**MADE["metadata"], "name": "demo-payload"}}),
    ],
)
def test_what_others_made_is_none_of_ours(part: str, change: dict[str, Any]) -> None:
    assert not payload.is_payload({**deepcopy(MADE), **change}), part
