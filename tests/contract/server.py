"""Writes of SpeculativeDeployments to a real API server, over one connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from speculative_operator.domain import names


class Server:
    """Strict writes to the namespace `default`."""

    def __init__(self, api: client.ApiClient) -> None:
        self.custom = client.CustomObjectsApi(api)
        self.at = (names.GROUP, names.VERSION, "default", names.PLURAL)

    def create(self, body: dict[str, Any], *, keep: bool = False) -> dict[str, Any]:
        """The object as the server would keep it, or keeps it. Raises ApiException."""
        dry_run = None if keep else "All"
        created = self.custom.create_namespaced_custom_object(
            *self.at, body, field_validation="Strict", dry_run=dry_run
        )
        return cast("dict[str, Any]", created)

    def refusal(self, body: dict[str, Any]) -> dict[str, Any]:
        """The Status with which the server refuses it."""
        with pytest.raises(ApiException) as caught:
            self.create(body)
        status: dict[str, Any] = json.loads(caught.value.body or "")
        return status

    def get(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self.custom.get_namespaced_custom_object(*self.at, name))

    def write_status(self, name: str, status: Mapping[str, Any]) -> dict[str, Any]:
        """As the operator does, but refused where a field is not in the schema."""
        written = self.custom.patch_namespaced_custom_object_status(
            *self.at, name, {"status": status}, field_validation="Strict"
        )
        return cast("dict[str, Any]", written)
