"""Volumes, environment and identity of pods on the process node, and how fast changes reach them."""

import functools
import time
from pathlib import Path

import pytest
from tests.cluster.podlab import Json, PodLab, container, shell

from speculative_operator.domain import names
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme, Verifier
from speculative_operator.engines.base import EngineContainer
from speculative_operator.render import RenderInput
from speculative_operator.render.podspec import file_annotations, volumes_and_mounts

pytestmark = pytest.mark.cluster

WATCHER = (
    "trap 'exit 0' TERM; old=; while :; do new=$(cat /etc/speculative/table.json);"
    ' [ "$new" = "$old" ] || echo "$new $(date +%s.%N)"; old=$new; sleep 0.02; done'
)
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def _table_pod(lab: PodLab) -> None:
    lab.create("configmaps", "table", data={"table.json": "v1"})
    mounts = [
        {"name": "t", "mountPath": "/etc/speculative"},
        {"name": "t", "mountPath": "/etc/fixed/table.json", "subPath": "table.json"},
    ]
    lab.pod("p", shell(WATCHER, volumeMounts=mounts), volumes=[{"name": "t", "configMap": {"name": "table"}}])
    lab.ready("p")
    lab.until(lambda: "v1" in lab.log("p"))


def _logged(lab: PodLab, text: str) -> bool:
    return text in lab.log("p")


def test_annotated_pod_gets_a_changed_config_map_at_once(lab: PodLab) -> None:
    _table_pod(lab)
    delays = []
    for version in ("v2", "v3", "v4"):
        lab.patch("configmaps", "table", {"data": {"table.json": version}})
        lab.patch("pods", "p", {"metadata": {"annotations": {"poke": version}}})
        asked = time.time()
        lab.until(functools.partial(_logged, lab, version))
        delays.append(float(lab.log("p").split(f"{version} ")[1].split()[0]) - asked)
    assert sorted(delays)[1] < 5.0, f"the sync alone takes 8 to 12 seconds: {delays}"
    assert container(lab.get("pods", "p"))["restartCount"] == 0


def test_unannotated_pod_gets_it_with_the_next_sync(lab: PodLab) -> None:
    _table_pod(lab)
    lab.patch("configmaps", "table", {"data": {"table.json": "v2"}})
    lab.until(lambda: "v2" in lab.log("p"))
    lab.patch("configmaps", "table", {"data": {"table.json": "v3"}})
    time.sleep(2.0)
    assert "v3" not in lab.log("p"), "the sync comes every 8 to 12 seconds here, every 60 to 90 by default"
    lab.until(lambda: "v3" in lab.log("p"))


def test_every_kind_of_volume_at_its_true_path(lab: PodLab) -> None:
    lab.create("secrets", "s", stringData={"password": "hidden", "other": "x"})
    lab.create("configmaps", "c", data={"a": "1"})
    projected = [
        {"secret": {"name": "s", "items": [{"key": "password", "path": "deep/password", "mode": 0o400}]}},
        {"configMap": {"name": "gone", "optional": True}},
        {"downwardAPI": {"items": [{"path": "label", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}},
        {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
    ]
    volumes = [
        {"name": "p", "projected": {"sources": projected}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}},
        {"name": "home", "emptyDir": {}},
        {"name": "c", "configMap": {"name": "c", "defaultMode": 0o440}},
        {"name": "host", "hostPath": {"path": "/usr/share", "type": "Directory"}},
    ]
    mounts = [
        {"name": "p", "mountPath": "/etc/speculative"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "home", "mountPath": "/home/vllm"},
        {"name": "c", "mountPath": "/models/config"},
        {"name": "host", "mountPath": "/opt/host/share", "readOnly": True},
        {"name": "home", "mountPath": "/scratch", "subPath": "probe"},
    ]
    script = """
cat /etc/speculative/deep/password; echo; cat /etc/speculative/label; echo
stat -L -c %a /etc/speculative/deep/password /models/config/a
df --output=size /dev/shm | tail -1
cut -d. -f2 /etc/speculative/token | tr -- '-_' '+/' | base64 -d 2>/dev/null | grep -o '"aud":\\["vault"\\]'
touch /scratch/x && ls /home/vllm
touch /models/config/b 2>/dev/null || echo read-only
test -d /opt/host/share/doc && ls /etc/passwd
"""
    output = lab.run(script, labels={"a": "b"}, volumes=volumes, container={"volumeMounts": mounts})
    assert output.split() == [
        *("hidden", "b", "400", "440", "131072", '"aud":["vault"]', "probe", "read-only", "/etc/passwd")
    ]


def test_files_of_an_engine_come_from_the_pods_own_annotations(lab: PodLab) -> None:
    """As render makes them: the API server takes the field paths, and the node writes the bare texts."""
    engine = EngineContainer(
        image="x", args=(), env=(), startup_seconds=1, shutdown_seconds=1,
        files={"adaptive.json": '{"1": {"steps": [0, 3]}}', "engine.yaml": "a: 1\nb: |\n  c\n"},
    )  # fmt: skip
    spec = DeploymentSpec("demo", "models", "uid", 1, Verifier(ModelSource(Scheme.HF, "a/b"), "demo"))
    inp = RenderInput(resolve(spec), engine, None, 1)
    volumes, mounts = volumes_and_mounts(inp)
    pair = [[one for one in many if one["name"] == "config"] for many in (volumes, mounts)]
    script = f"cd {names.CONFIG_MOUNT} && cat adaptive.json; echo; cat engine.yaml; ls"
    output = lab.run(script, annotations=file_annotations(inp), volumes=pair[0], container={"volumeMounts": pair[1]})
    assert output == '{"1": {"steps": [0, 3]}}\na: 1\nb: |\n  c\nadaptive.json\nengine.yaml\n'


def test_host_is_untouched_and_the_root_can_be_read_only(lab: PodLab) -> None:
    mark = Path("/tmp/devnode-mark")
    script = (
        f"echo x > {mark} && cat {mark}; touch /usr/mark 2>/dev/null || echo usr is read-only; hostname; echo $HOME"
    )
    assert lab.run(script) == "x\nusr is read-only\nprobe\n/root\n"
    assert not mark.exists()
    locked: Json = {
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp/mine"}],
    }
    script = "for d in / /tmp /run /root /etc; do touch $d/mark 2>/dev/null || echo $d; done"
    script += "; touch /tmp/mine/a /dev/shm/a && echo ok"
    output = lab.run(script, "locked", container=locked, volumes=[{"name": "tmp", "emptyDir": {}}])
    assert output.split() == ["/", "/tmp", "/run", "/root", "/etc", "ok"]


def test_claim_gets_a_volume_that_outlives_its_pods(lab: PodLab) -> None:
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    lab.create("persistentvolumeclaims", "cache", spec=request)
    claim = lab.until(lambda: (c := lab.get("persistentvolumeclaims", "cache"))["status"].get("phase") == "Bound" and c)
    assert claim["spec"]["storageClassName"] == "standard"
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "cache"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/models"}]}
    lab.run("echo weights > /models/a", "one", volumes=volumes, container=mounts)
    assert lab.run("cat /models/a", "two", volumes=volumes, container=mounts) == "weights\n"
    directory = lab.cluster.state_dir / "node" / "volumes" / claim["spec"]["volumeName"]
    assert directory.is_dir()
    for name in ("one", "two"):
        lab.delete("pods", name)
    lab.delete("persistentvolumeclaims", "cache")
    lab.until(lambda: not directory.exists())
