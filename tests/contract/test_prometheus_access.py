"""The operator's client at a real Prometheus, behind what clusters put in front of theirs: it reads the pod, or says
what is wrong and what to do.

Each gap is the message of `MetricsAvailable` (report/tuning.py). No test waits for anything but the first samples:
what lags is asked for at a later time.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.emulator_process import emulator
from tests.contract.prometheus_fronts import (
    HOST,
    NAMESPACE,
    POD,
    Scraped,
    front,
    scraping,
    wants_header,
    wants_namespace,
)
from tests.ports import free_port
from tests.unit.engines.building import spec

from devcluster.pki import Authority, KeyPair
from speculative_operator.domain.observation import Gap, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import engine_for
from speculative_operator.settings import Settings
from speculative_operator.shell.podseries import Answer
from speculative_operator.shell.prometheus import Prometheus

STALE_AFTER = 30.0
MOST = 10_000


@pytest.fixture(scope="module")
def scraped(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with (
        emulator() as engine,
        scraping(engine.url.removeprefix("http://"), tmp_path_factory.mktemp("prometheus"), free_port()) as found,
    ):
        yield found


@dataclass(frozen=True, slots=True)
class Certificates:
    """Two authorities that do not know each other, a server of the first and a client of it."""

    authority: Path
    stranger: Path
    server: KeyPair
    client_folder: Path

    def context(self, *, asks: bool = False) -> ssl.SSLContext:
        """Of the server; `asks`: for a client's certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server.certificate, self.server.key)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    root = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority.create(root / "a"), Authority.create(root / "b")
    client, folder = authority.issue("client", "operator"), root / "client"
    folder.mkdir()
    for file, name in ((client.certificate, "tls.crt"), (client.key, "tls.key")):
        (folder / name).write_bytes(file.read_bytes())
    server = authority.issue("server", "prometheus", alternative_names=[HOST])
    return Certificates(authority.certificate_path, stranger.certificate_path, server, folder)


def read(
    url: str, *, namespace: str = NAMESPACE, pod: str = POD, later: float = 0.0, **settings: Any
) -> PodWindow | Gap:
    """What the operator knows of the pod after one round, as of `later` seconds from now."""
    now = time.time() + later
    chosen = Settings(prometheus_url=url, **settings)
    found = Prometheus(chosen).fetch(namespace, {pod: (HOST,)}, now, MOST)
    if isinstance(found, Gap):
        return found
    assert isinstance(found, Answer)
    seen = engine_for(spec()).read(found.series.get(pod, ()), [pod], {}, now, STALE_AFTER)[pod]
    return seen if isinstance(seen, PodWindow) else found.gaps.get(pod, seen)


def connects(found: PodWindow | Gap) -> None:
    assert isinstance(found, PodWindow), found


def fails(found: PodWindow | Gap, reason: Reason, *words: str) -> None:
    """With each of these words in its message."""
    assert isinstance(found, Gap)
    assert found.reason is reason, found
    assert [word for word in words if word not in found.message] == [], found.message


def file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def basic_auth(folder: Path, password: str) -> Path:
    file(folder, "username", "operator\n")
    file(folder, "password", f"{password}\n")
    return folder


# -- what connects


def test_one_below_a_path(scraped: Scraped) -> None:
    with front(scraped.port, prefix="/prometheus") as url:
        connects(read(f"{url}/prometheus/"))
        fails(read(url), Reason.PROMETHEUS_ERROR, "404", "path prefix", "prometheus.url")


def test_one_that_asks_for_a_token_and_another_once_it_rotates(scraped: Scraped, tmp_path: Path) -> None:
    """The token expires while the operator holds a connection: the very next query sends the one in the file."""
    token, valid = file(tmp_path, "token", "first\n"), ["first"]

    def check(handler: Any) -> tuple[int, str] | None:
        return wants_header("Authorization", f"Bearer {valid[0]}")(handler)

    with front(scraped.port, check) as url:
        client = Prometheus(Settings(prometheus_url=url, prometheus_token_file=str(token)))

        def ask() -> Answer | Gap:
            return client.fetch(NAMESPACE, {POD: (HOST,)}, time.time(), MOST)

        assert isinstance(ask(), Answer)
        valid[0] = "second"
        expired = ask()
        assert isinstance(expired, Gap)
        assert (expired.reason, "401" in expired.message) == (Reason.PROMETHEUS_ERROR, True)
        assert "prometheus.token" in expired.message
        assert "first" not in expired.message
        token.write_text("second\n")
        assert isinstance(ask(), Answer)


def test_one_with_an_authority_of_its_own(scraped: Scraped, certificates: Certificates) -> None:
    with front(scraped.port, tls=certificates.context()) as url:
        connects(read(url, prometheus_ca_file=str(certificates.authority)))
        for ca in ("", str(certificates.stranger)):
            found = read(url, prometheus_ca_file=ca)
            fails(found, Reason.PROMETHEUS_ERROR, "cannot be verified", "prometheus.ca")
        by_another_name = url.replace(HOST, "localhost")
        found = read(by_another_name, prometheus_ca_file=str(certificates.authority))
        fails(found, Reason.PROMETHEUS_ERROR, "cannot be verified", "prometheus.url")


def test_one_that_asks_for_a_certificate(scraped: Scraped, certificates: Certificates) -> None:
    ca = str(certificates.authority)
    with front(scraped.port, tls=certificates.context(asks=True)) as url:
        connects(read(url, prometheus_ca_file=ca, prometheus_certificate_folder=str(certificates.client_folder)))
        fails(read(url, prometheus_ca_file=ca), Reason.PROMETHEUS_ERROR, "prometheus.clientCertificate")
        missing = read(url, prometheus_ca_file=ca, prometheus_certificate_folder="/nonexistent")
        fails(missing, Reason.PROMETHEUS_ERROR, "/nonexistent/tls.crt")


def test_one_that_asks_for_user_and_password(scraped: Scraped, tmp_path: Path) -> None:
    wanted = f"Basic {base64.b64encode(b'operator:secret').decode()}"
    with front(scraped.port, wants_header("Authorization", wanted)) as url:
        folder = basic_auth(tmp_path, "secret")
        connects(read(url, prometheus_basic_auth_folder=str(folder)))
        basic_auth(folder, "wrong")
        wrong = read(url, prometheus_basic_auth_folder=str(folder))
        fails(wrong, Reason.PROMETHEUS_ERROR, "401", "prometheus.basicAuth")
        (folder / "password").unlink()
        fails(read(url, prometheus_basic_auth_folder=str(folder)), Reason.PROMETHEUS_ERROR, str(folder))


def test_one_of_many_tenants(scraped: Scraped) -> None:
    with front(scraped.port, wants_header("X-Scope-OrgID", "team-a")) as url:
        connects(read(url, prometheus_headers='{"X-Scope-OrgID": "team-a"}'))
        fails(read(url), Reason.PROMETHEUS_ERROR, "401", "refuses the credentials")


def test_one_that_wants_the_namespace_beside_the_query(scraped: Scraped) -> None:
    with front(scraped.port, wants_namespace(NAMESPACE)) as url:
        connects(read(url))
        fails(read(url, namespace="other"), Reason.PROMETHEUS_ERROR, "403", "cluster-monitoring-view")


def test_one_behind_a_proxy(scraped: Scraped) -> None:
    with front(scraped.port, prefix="http://prometheus.example") as proxy:
        connects(read("http://prometheus.example", prometheus_proxy=proxy))
    found = read("http://prometheus.example", prometheus_proxy=proxy)
    fails(found, Reason.PROMETHEUS_ERROR, "proxy cannot be reached", "prometheus.proxy")


def test_one_that_names_pods_by_another_label(scraped: Scraped) -> None:
    url = f"http://{HOST}:{scraped.port}"
    found = read(url, namespace="relabelled", pod="b")
    fails(found, Reason.METRICS_MISSING, "SPECULATIVE_PROMETHEUS_POD_LABEL=kubernetes_pod_name")
    found = read(url, namespace="relabelled", pod="b", prometheus_pod_label="kubernetes_pod_name")
    fails(found, Reason.METRICS_MISSING, "SPECULATIVE_PROMETHEUS_NAMESPACE_LABEL=kubernetes_namespace")
    labels: dict[str, Any] = {
        "prometheus_pod_label": "kubernetes_pod_name",
        "prometheus_namespace_label": "kubernetes_namespace",
    }
    connects(read(url, namespace="relabelled", pod="b", **labels))


def test_one_that_keeps_the_namespace_of_the_pod_for_itself(scraped: Scraped) -> None:
    url = f"http://{HOST}:{scraped.port}"
    found = read(url, namespace="exported", pod="c")
    fails(found, Reason.METRICS_MISSING, "SPECULATIVE_PROMETHEUS_NAMESPACE_LABEL=exported_namespace")
    connects(read(url, namespace="exported", pod="c", prometheus_namespace_label="exported_namespace"))


def test_one_that_rewrites_instance(scraped: Scraped) -> None:
    url = f"http://{HOST}:{scraped.port}"
    found = read(url, namespace="rewritten", pod="d")
    fails(found, Reason.METRICS_FOREIGN, "node-7", "SPECULATIVE_PROMETHEUS_ADDRESS_LABEL")
    connects(read(url, namespace="rewritten", pod="d", prometheus_address_label="none"))


# -- what cannot, and says why


def test_one_that_lags_behind(scraped: Scraped) -> None:
    """Federation, or a remote store: the samples are true, and too old to act on."""
    url = f"http://{HOST}:{scraped.port}"
    fails(read(url, later=40.0), Reason.METRICS_STALE, "s old")
    fails(read(url, later=3600.0), Reason.METRICS_MISSING, "no samples")
