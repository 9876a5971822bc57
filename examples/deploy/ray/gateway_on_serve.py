"""The gateway as a Ray Serve application: any number of replicas that share a Redis.

    serve run gateway_on_serve:build config=gateway.toml replicas=2

Every node needs the gateway installed, and this file and the configuration at the same paths. `GATEWAY_…` variables are those of
the process that builds the application: the command `serve run`, or for `serve deploy` the cluster's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application

DRAIN_SECONDS = 600.0
"""How long a replica that goes away may take to end what it runs; new requests go to the others at once."""


def build(arguments: dict[str, str]) -> Application:
    """`config` is the path of a gateway.toml, from here or from this file's folder. `replicas` is how many gateways there
    are, or `auto`: then `target` is how many requests each shall have. `ongoing` is how many one may have at once."""
    path = Path(arguments.get("config", "gateway.toml"))
    path = (path if path.exists() else Path(__file__).parent / path).resolve()
    settings = {name: value for name, value in os.environ.items() if name.startswith("GATEWAY_")}

    def gateway() -> Any:
        # Runs in each replica; the lifespan of what is returned opens the models there.
        from gateway.app import create_app
        from gateway.config import load_config
        from gateway.plugins import load_plugins

        config = load_config(path, settings)
        return create_app(config, load_plugins(config.plugins))

    ongoing = int(arguments.get("ongoing", "1000"))
    scaling: dict[str, Any]
    if (replicas := arguments.get("replicas", "2")) == "auto":
        limits = {"min_replicas": 2, "max_replicas": 16}
        target = {"target_ongoing_requests": int(arguments.get("target", "200"))}
        scaling = {"num_replicas": "auto", "autoscaling_config": {**limits, **target}}
    else:
        scaling = {"num_replicas": int(replicas)}
    deployment = serve.deployment(
        name="gateway",
        # Queues are the gateway's own ([models.<name>] max_running, max_waiting), with its 429: Ray's shall not be first.
        max_ongoing_requests=ongoing,
        graceful_shutdown_wait_loop_s=1.0,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        ray_actor_options={"num_cpus": 0.5},
        **scaling,
    )(serve.ingress(gateway)())
    return deployment.bind()
