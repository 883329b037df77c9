"""The harm: the ConfigMap of a table is gone, as after a deletion by hand or by GitOps, and no operator is there to put
it back: a pod that waited for it would never start, after a drain, a crash or a scale-up."""

from __future__ import annotations

from pathlib import Path

from tests.unit.reconcile.worlds import settled, template

from speculative_operator.payload.speculative_table import POLL_SECONDS, TableFile
from speculative_operator.render.podspec import PAYLOAD_VOLUME, TABLE_VOLUME


def test_a_pod_starts_without_its_table_but_not_without_its_payload() -> None:
    volumes = template(settled().children["Deployment", "demo"])["spec"]["volumes"]
    optional = {one["name"]: one["configMap"].get("optional", False) for one in volumes if "configMap" in one}
    assert optional == {TABLE_VOLUME: True, PAYLOAD_VOLUME: False}


def test_the_engine_goes_by_the_table_of_its_start_until_the_file_comes(tmp_path: Path) -> None:
    path, now = tmp_path / "table.json", [0.0]
    file = TableFile(str(path), range(4), 8, clock=lambda: now[0])
    assert (file.poll(), file.table) == (None, None)
    path.write_text('{"version": 2, "rows": [[1, 8, 3]]}')
    now[0] += POLL_SECONDS
    found = file.poll()
    assert found is not None
    assert found.version == 2
    path.unlink()
    now[0] += POLL_SECONDS
    assert (file.poll(), file.table) == (None, found)
