"""The fake API server and a client for it, as the tests of `shell` have them."""

from tests.unit.shell.conftest import api, kube, telemetry

__all__ = ["api", "kube", "telemetry"]
