"""Answers of the API server, mapped to what they mean for the caller. Bodies as kube-apiserver 1.36 sends them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.shell import errors
from speculative_operator.shell.errors import from_response


def body(message: str, reason: str = "", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": reason, "details": details}).encode()


@pytest.mark.parametrize(
    ("status", "answer", "kind"),
    [
        (400, body("bad"), errors.InvalidError),
        (401, body("Unauthorized"), errors.UnauthorizedError),
        (403, body("cannot patch resource", "Forbidden"), errors.ForbiddenError),
        (404, body('namespaces "x" not found', "NotFound"), errors.NotFoundError),
        (409, body("the object has been modified", "Conflict"), errors.ConflictError),
        (409, body('leases "x" already exists', "AlreadyExists"), errors.ConflictError),
        (410, body("continue expired", "Expired"), errors.ExpiredListError),
        (422, body("spec.x: Invalid value", "Invalid"), errors.InvalidError),
        (429, body("too many requests"), errors.ThrottledError),
        (500, body("etcdserver: request timed out"), errors.UnavailableError),
        (502, b"<html>bad gateway</html>", errors.UnavailableError),
        (503, b"", errors.UnavailableError),
        (504, body("timeout"), errors.UnavailableError),
        (302, b"", errors.UnavailableError),
    ],
)
def test_status_decides_the_kind(status: int, answer: bytes, kind: type[errors.ApiError]) -> None:
    error = from_response("apply", "services a/b", status, {}, answer)
    assert type(error) is kind
    assert error.status == status
    assert str(error).startswith("apply services a/b: ")


def test_a_field_that_is_not_in_the_schema_is_our_fault_though_the_server_says_500() -> None:
    answer = body("failed to create typed patch object (/zz; policy/v1): .spec.selectorx: field not declared in schema")
    assert type(from_response("apply", "x", 500, {}, answer)) is errors.InvalidError


@pytest.mark.parametrize(
    "answer",
    [
        body("forbidden", "Forbidden", causes=[{"reason": "NamespaceTerminating", "message": "...", "field": "x"}]),
        body('unable to create new content in namespace "x" because it is being terminated', "Forbidden"),
    ],
)
def test_a_terminating_namespace_is_not_a_missing_permission(answer: bytes) -> None:
    assert type(from_response("apply", "x", 403, {}, answer)) is errors.NamespaceTerminatingError


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("99999", 300.0), ("soon", None)]
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert from_response("get", "x", 429, {"Retry-After": value}, b"").retry_after == seconds


@given(st.integers(300, 599), st.binary(max_size=200))
def test_no_answer_breaks_the_mapping(status: int, answer: bytes) -> None:
    error = from_response("get", "x", status, {}, answer)
    assert error.message


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_json_breaks_the_mapping(answer: object) -> None:
    assert from_response("get", "x", 403, {}, json.dumps({"details": answer, "message": answer}).encode()).message
