"""What several files of this folder ask for by name: the fake API server and a client for it, and a scripted tuner."""

from tests.unit.reconcile.conftest import tuner
from tests.unit.shell.conftest import api, kube, telemetry

__all__ = ["api", "kube", "telemetry", "tuner"]
