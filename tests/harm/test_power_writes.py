"""The harm: the operator's roles let its token change every workload of the cluster; the admission policy that bounds
it must hold for every kind it may write, and for nobody else's writes. On a real API server: tests/cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from generate import rbac
from speculative_operator.domain import names

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = [one for one in yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()) if one]
BOUNDED_BY_ROLES = {
    (names.GROUP, f"{plural}/{part}")
    for plural in (names.PLURAL, names.TRAINING_PLURAL)
    for part in ("status", "finalizers")
}
ONLY_NEWS = {("events.k8s.io", "events")}


def one(kind: str) -> Any:
    (found,) = [item for item in INSTALLED if item["kind"] == kind]
    return found


def test_the_operator_cannot_write_a_kind_that_its_policy_does_not_bound() -> None:
    writing = {
        (permission.group, permission.resource)
        for permission in rbac.OPERATOR
        if not {"get", "list", "watch"} >= set(permission.verbs)
    }
    rules = one("ValidatingAdmissionPolicy")["spec"]["matchConstraints"]["resourceRules"]
    bounded = {(rule["apiGroups"][0], resource) for rule in rules for resource in rule["resources"]}
    assert bounded == writing - BOUNDED_BY_ROLES - ONLY_NEWS
    assert all(rule["operations"] == ["CREATE", "UPDATE", "DELETE"] for rule in rules)


def test_the_policy_is_in_force_and_for_the_operator_alone() -> None:
    policy, binding = one("ValidatingAdmissionPolicy"), one("ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    account = one("ServiceAccount")["metadata"]
    who = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == f'request.userInfo.username == "{who}"'
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_every_refusal_says_what_and_why() -> None:
    for validation in one("ValidatingAdmissionPolicy")["spec"]["validations"]:
        assert validation["reason"] == "Forbidden"
        assert '"the speculative operator may not "' in validation["messageExpression"]
