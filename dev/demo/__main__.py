"""`make demo`: sets the scene, replays the load, shows it; leaves build/demo/report.html and a line of JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from demo.run import Demo, Settings
from demo.scene import NAMESPACE, ROOT, SceneError, variants
from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError

COMPLETIONS = f"/api/v1/namespaces/{NAMESPACE}/services/{variants()[0].name}:8000/proxy/v1/completions"
REQUEST = json.dumps({"model": variants()[0].model, "prompt": "Kubernetes is", "max_tokens": 20})


def arguments() -> Settings:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up; end it with: make down")
    parser.add_argument("--seconds", type=float, default=Settings().seconds, help="length of the replay")
    parser.add_argument("--name", default="demo", help="name of the cluster")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo", help="folder of the report")
    parser.add_argument("--alone", action="store_true", help="only the tuned variant, without the two to compare with")
    parser.add_argument(
        "--picture", type=Path, help="save the live view at the top of the load, and the comparison, as SVG"
    )
    parser.add_argument("--record", type=Path, help="keep what `speculative status` reads during the replay, as JSON")
    return Settings(**vars(parser.parse_args()))


def farewell(console: Console, cluster: Cluster) -> None:
    """How to use what was left up."""
    lines = (
        "\nThe cluster is up. Use it with:\n",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        f"  export PATH={Path(cluster.binaries.kubectl).parent}:$PATH",
        "  kubectl get specdep -A",
        "  kubectl explain specdep.spec.speculation",
        "\nThe node has no port-forward: send a request through the API server.\n",
        f"  kubectl create --raw {COMPLETIONS} -f - <<< '{REQUEST}'",
        f"\nEnd it with: make down{f' NAME={cluster.name}' * (cluster.name != 'demo')}",
    )
    # not wrapped: these lines are copied
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def main() -> int:
    settings = arguments()
    console = Console(stderr=False)
    # a terminated demo unwinds like an interrupted one, so that the cluster ends with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    demo = Demo(settings, console)
    try:
        summary = demo.play(started)
    except KeyboardInterrupt:
        console.print("\nInterrupted: nothing is left behind.")
        demo.end()
        return 130
    except (SceneError, DevClusterError) as error:
        console.print(f"\n[red]{error}[/red]", highlight=False, soft_wrap=True)
        demo.end()
        print(json.dumps({"ok": False, "error": str(error).splitlines()[0]}))
        return 1
    except BaseException:
        demo.end()
        raise
    if settings.keep and demo.cluster is not None:
        farewell(console, demo.cluster)
    else:
        demo.end()
    print(json.dumps(summary), flush=True)
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
