"""Start a process node inside the development cluster's enclosure: ``python -m devcluster.node --config node.json``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import sys
from pathlib import Path

import uvloop

from .agent import Agent
from .api import ApiError
from .config import ConfigError, NodeConfig, load
from .network import NetworkError


async def _main(config: NodeConfig) -> None:
    ready = asyncio.Event()
    running = asyncio.create_task(Agent(config).run(ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    announcing = asyncio.create_task(ready.wait())
    await asyncio.wait({running, announcing}, return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        print(f"node {config.name} ready", flush=True)
    announcing.cancel()
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()


def main() -> int:
    """Run a node until SIGTERM. Exit code 2: the configuration is wrong; 1: the node could not start or had to end."""
    parser = argparse.ArgumentParser(prog="devcluster.node", description="A node that runs pods as local processes.")
    parser.add_argument("--config", type=Path, required=True, help="the node's JSON configuration")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        uvloop.run(_main(load(arguments.config)))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ApiError, NetworkError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
