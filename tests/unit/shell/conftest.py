"""A fake API server and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.shell.fakeapi import FakeApi, kubeconfig, serving

from speculative_operator.settings import Settings
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.telemetry import Telemetry


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    async with serving() as made:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(made), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.delenv("POD_NAME", raising=False)
        yield made


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def kube(api: FakeApi, telemetry: Telemetry) -> AsyncIterator[Kube]:
    made = Kube(Settings(read_timeout_seconds=1.0, write_slots=4), telemetry)
    await made.start()
    yield made
    await made.close()
