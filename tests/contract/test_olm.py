"""The OLM bundle on OLM's own definitions and a real API server: every object of it is taken strictly, and so is the
Subscription that its description shows. No OLM works here."""

from __future__ import annotations

from typing import Any

import pytest
from tests import definitions
from tests.unit.api.test_olm import manifests, subscription

from devcluster import Cluster
from speculative_operator.reconcile.observed.drift import first_difference

pytestmark = pytest.mark.cluster

OBJECTS = manifests()


@pytest.fixture(scope="module")
def lifecycle(bare_cluster: Cluster) -> Cluster:
    definitions.install(bare_cluster, definitions.read("olm"))
    bare_cluster.kubectl("create", "namespace", "speculative-system", check=False)
    return bare_cluster


@pytest.mark.parametrize("file", sorted(OBJECTS))
def test_every_object_of_the_bundle_is_taken(lifecycle: Cluster, file: str) -> None:
    stored = definitions.accepted(lifecycle, OBJECTS[file])
    if OBJECTS[file]["kind"] != "CustomResourceDefinition":
        assert first_difference(OBJECTS[file], stored) == ""


def test_a_field_that_olm_does_not_know_is_refused(lifecycle: Cluster) -> None:
    """What the test before can find: a wrong name is not dropped silently."""
    csv: dict[str, Any] = next(one for one in OBJECTS.values() if one["kind"] == "ClusterServiceVersion")
    wrong = {**csv, "spec": {**csv["spec"], "relatedimages": []}}
    with pytest.raises(Exception, match="relatedimages"):
        definitions.accepted(lifecycle, wrong)


def test_the_subscription_that_the_description_shows_is_taken(lifecycle: Cluster) -> None:
    assert first_difference(subscription(), definitions.accepted(lifecycle, subscription())) == ""
