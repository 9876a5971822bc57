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
"""Time that a replica being removed has to finish its requests, in seconds. New requests go to other replicas at
once."""


def build(arguments: dict[str, str]) -> Application:
    """Build the application.

    `config` is the path of a gateway.toml, relative to the working directory or to this file's folder. `replicas` is
    the number of gateways, or `auto`: then `target` is the desired number of requests per gateway. `ongoing` is the
    maximum number of concurrent requests per gateway.
    """
    path = Path(arguments.get("config", "gateway.toml"))
    path = (path if path.exists() else Path(__file__).parent / path).resolve()
    settings = {name: value for name, value in os.environ.items() if name.startswith("GATEWAY_")}

    def gateway() -> Any:
        # Runs in each replica. The lifespan of the returned application opens the models there.
        from gateway.config import load_config
        from gateway.http.app import create_app
        from gateway.plugins.loading import load_plugins

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
        # The gateway queues requests itself ([models.<name>] max_running, max_waiting) and responds with 429. Ray must
        # not queue first.
        max_ongoing_requests=ongoing,
        graceful_shutdown_wait_loop_s=1.0,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        ray_actor_options={"num_cpus": 0.5},
        **scaling,
    )(serve.ingress(gateway)())
    return deployment.bind()
