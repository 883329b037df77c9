"""What is generated before a cluster starts: command lines, certificates, kubeconfigs, the node's configuration."""

import ipaddress
import json
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster import ClusterOptions, Image, Toolchain, addresses, controlplane, startup
from devcluster.component import Component, Forward, Plan
from devcluster.controlplane import Files
from devcluster.node.config import ConfigError, load

_TOOLS = Toolchain(**{name: Path("/bin") / name for name in Toolchain.__dataclass_fields__})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    controlplane.prepare(found, "mine", "https://127.0.0.1:4711", "node-1")
    return found


def _flags(component: Component) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in component.argv[1:])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (
            ClusterOptions(),
            {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "prometheus", "node"},
        ),
        (ClusterOptions(node=False, controllers=False, prometheus=False), {"etcd", "kube-apiserver"}),
        (
            ClusterOptions(node=False, prometheus=False),
            {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"},
        ),
    ],
)
def test_only_what_is_asked_for_runs(files: Files, options: ClusterOptions, names: set[str]) -> None:
    chosen = startup.components(options, _TOOLS, files)
    assert {item.name for item in chosen} == names
    assert {name for item in chosen for name in item.after} <= names


def test_files_named_on_command_lines_exist(files: Files) -> None:
    made_by_the_program = {"data-dir", "audit-log-path"}
    for component in (controlplane.api_server(files, _TOOLS), *controlplane.controllers(files, _TOOLS)):
        for flag, value in _flags(component).items():
            if value.startswith(str(files.directory)) and flag not in made_by_the_program:
                assert Path(value).is_file(), flag


def test_api_server_authorizes_audits_and_enables_nothing_special(files: Files) -> None:
    flags = _flags(controlplane.api_server(files, _TOOLS))
    assert flags["authorization-mode"] == "Node,RBAC"
    assert flags["audit-log-path"] == str(files.audit_log)
    assert flags["profiling"] == "false"
    assert not {"feature-gates", "enable-admission-plugins", "disable-admission-plugins", "runtime-config"} & set(flags)


def test_flags_of_the_api_server_may_be_added(files: Files) -> None:
    options = ClusterOptions(api_server_flags={"emulated-version": "1.34"})
    server = next(one for one in startup.components(options, _TOOLS, files) if one.name == "kube-apiserver")
    assert _flags(server) == _flags(controlplane.api_server(files, _TOOLS)) | {"emulated-version": "1.34"}


def test_addresses_lie_in_their_ranges_and_apart() -> None:
    pods = ipaddress.ip_network(addresses.POD_RANGE)
    services = ipaddress.ip_network(addresses.SERVICE_RANGE)
    node_pods = ipaddress.ip_network(addresses.NODE_POD_RANGE)
    fixed = [ipaddress.ip_address(item) for item in (addresses.API_SERVER, addresses.NODE, addresses.PROMETHEUS)]
    assert not pods.overlaps(services)
    assert node_pods.subnet_of(pods)  # type: ignore[arg-type] # both are IPv4
    assert len(set(fixed)) == len(fixed)
    assert all(item in pods and item not in node_pods for item in fixed)
    assert ipaddress.ip_address(addresses.KUBERNETES_SERVICE) == services[1]
    assert ipaddress.ip_address(addresses.PROMETHEUS_SERVICE) in services


@pytest.mark.parametrize(
    ("identity", "user", "groups"),
    [
        ("admin", "admin", {"system:masters"}),
        ("controller-manager", "system:kube-controller-manager", set()),
        ("scheduler", "system:kube-scheduler", set()),
        ("node", "system:node:node-1", {"system:nodes", "system:masters"}),
    ],
)
def test_certificates_say_who_they_are_for(files: Files, identity: str, user: str, groups: set[str]) -> None:
    subject = x509.load_pem_x509_certificate((files.keys / f"{identity}.crt").read_bytes()).subject
    assert [item.value for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [user]
    assert {item.value for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)} == groups
    config = yaml.safe_load(files.inside(identity).read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.88.0.1:6443"


def test_server_certificate_holds_every_name_it_is_reached_by(files: Files) -> None:
    certificate = x509.load_pem_x509_certificate((files.keys / "apiserver.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(item) for item in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "10.88.0.1", "10.96.0.1"}
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    certificate.verify_directly_issued_by(authority)


def test_secrets_are_readable_by_their_owner_only(files: Files) -> None:
    secret = [files.kubeconfig, *files.keys.glob("*.key"), *files.directory.glob("*.kubeconfig")]
    assert len(secret) > 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_kubeconfig_for_people_names_the_cluster_and_the_hosts_port(files: Files) -> None:
    config = yaml.safe_load(files.kubeconfig.read_text())
    assert config["current-context"] == "devcluster-mine"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:4711"


def test_node_is_told_everything_it_asks_for(files: Files) -> None:
    options = ClusterOptions(
        images={"web:1": Image(("/bin/web", "-v"), {"A": "b"})},
        accelerators={"nvidia.com/gpu": 4},
        node_labels={"zone": "a"},
    )
    component = startup.node(options, files)
    assert component.argv[1:4] == ("-m", "devcluster.node", "--config")
    written = json.loads(Path(component.argv[4]).read_text())
    assert Path(written.pop("kubeconfig")).is_file()
    assert Path(written.pop("stateDir")).is_dir()
    assert all(Path(written.pop(name)).is_file() for name in ("certificate", "key"))
    assert written == {
        "name": "node-1",
        "server": "https://10.88.0.1:6443",
        "address": "10.88.0.2",
        "podCIDR": "10.88.1.0/24",
        "serviceCIDR": "10.96.0.0/16",
        "accelerators": {"nvidia.com/gpu": 4},
        "labels": {"zone": "a"},
        "images": {"web:1": {"entrypoint": ["/bin/web", "-v"], "env": {"A": "b"}}},
        "kubeletPort": 10250,
    }


def test_the_node_reads_what_it_is_told(files: Files) -> None:
    settings = {"syncSeconds": 1.5, "visible": ["/opt/engine"]}
    config = load(Path(startup.node(ClusterOptions(node_settings=settings), files).argv[4]))
    assert (config.address, config.kubelet_port, config.sync_seconds) == ("10.88.0.2", 10250, 1.5)
    assert config.resources["nvidia.com/gpu"] == "8"
    assert Path("/opt/engine") in config.visible
    with pytest.raises(ConfigError, match="syncSecond:"):
        load(Path(startup.node(ClusterOptions(node_settings={"syncSecond": 1}), files).argv[4]))


def test_plan_survives_the_way_into_the_enclosure() -> None:
    plan = Plan(
        directory="/d",
        lock="/l",
        lock_fd=3,
        parent_fd=4,
        stays=True,
        ranges=("10.0.0.0/8",),
        certificate_authority="/ca",
        forwards=(Forward(5, "10.0.0.1", 6443),),
        components=(Component("a", ("/a", "-b"), "tcp://h:1", ("c",), ("/f",), {"E": "v"}),),
        keep_logs="/k",
    )
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
