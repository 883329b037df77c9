"""The external metrics API in front of Prometheus, as prometheus-adapter serves it, for one rule: a stand-in that a pod
of the tests runs. `python metrics_api.py CERTIFICATE KEY PROMETHEUS QUERY`."""

from __future__ import annotations

import json
import re
import ssl
import sys
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 6443
VERSION = "external.metrics.k8s.io/v1beta1"
_ONE = re.compile(rf"/apis/{re.escape(VERSION)}/namespaces/([^/]+)/([^/]+)")


def matchers(namespace: str, selector: str) -> str:
    """`<<.LabelMatchers>>` for a selector of equalities."""
    wanted = {"namespace": namespace, **dict(one.split("=") for one in selector.split(",") if one)}
    return ",".join(f'{name}="{value}"' for name, value in wanted.items())


def value(prometheus: str, query: str) -> list[float]:
    """What Prometheus has for it: one value, or none."""
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
        return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]


class Api(BaseHTTPRequestHandler):
    """Discovery, and one metric of one namespace."""

    prometheus = query = ""

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        found = _ONE.fullmatch(parts.path)
        if found is None:
            self._answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": []})
            return
        namespace, name = found.groups()
        selector = dict(urllib.parse.parse_qsl(parts.query)).get("labelSelector", "")
        asked = self.query.replace("<<.LabelMatchers>>", matchers(namespace, selector))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        items: list[dict[str, Any]] = [
            {"metricName": name, "metricLabels": {}, "timestamp": now, "value": f"{round(1000 * one)}m"}
            for one in value(self.prometheus, asked)
        ]
        self._answer({"kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": items})

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    certificate, key, Api.prometheus, Api.query = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Api)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
