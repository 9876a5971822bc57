"""Configuration of the `remote` engine, and the part shared by all engines over HTTP."""

from __future__ import annotations

import os
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from gateway.sdk import ConfigurationError
from gateway.sdk.configuration import Positive, Seconds
from gateway.sdk.http import header_value
from gateway_remote.choose import Policy
from gateway_remote.pool import PoolSettings

DialectName: TypeAlias = Literal["vllm-generate", "vllm", "sglang", "trtllm", "llamacpp"]


class PoolConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings shared by all engines with replicas over HTTP. Times are in seconds."""

    urls: list[str] = []
    """Addresses of the replicas, such as `http://host:8000`. A model `path` that is an address is added to them."""
    dns: str | None = None
    """Address whose host name resolves to all replicas, such as a headless Kubernetes service. Each IP address is one
    replica; resolved periodically."""
    file: str | None = None
    """File with one address per line; `#` starts a comment. Read periodically."""
    discovery_interval: Seconds = 5.0
    """Interval between lookups of `dns` and `file`, in seconds."""
    api_key: str | None = None
    """Sent as a bearer token."""
    api_key_env: str | None = None
    """Environment variable that holds the API key."""
    headers: dict[str, str] = {}
    """Additional headers of every request."""
    ca_file: str | None = None
    """CA certificate file, used instead of the system's."""
    tls_verify: bool = True
    """Whether to verify certificates."""
    connect_timeout: Seconds = 3.0
    first_token_timeout: Seconds = 300.0
    """Seconds from sending a request to its first token, the engine's queue included. After that another replica is
    tried."""
    stall_timeout: Seconds = 60.0
    """Seconds without data in a stream after its first token. After that the stream fails."""
    attempts: Positive = 4
    """Number of replicas that may fail a request before the request fails. Unreachable ones do not count."""
    wait_for_replica: Annotated[float, Meta(ge=0)] = 2.0
    """Seconds that a request waits for a replica to recover if none can serve."""
    hedge_after: Seconds | None = None
    """Seconds without a first token after which the request is also sent to a second replica and the faster one used.
    This costs compute. Default: never."""
    choice: Policy = "affinity"
    """Load balancing. `affinity`: the replica that has cached the longest prefix of the prompt, unless it is
    overloaded; otherwise as `power_of_two`: the less loaded of two random replicas. `least_loaded` and `random` are the
    alternatives."""
    affinity_block: Positive = 32
    """Size of a prefix-affinity block, in tokens."""
    affinity_blocks: Positive = 65536
    """Blocks remembered per replica: about as many as its cache holds."""
    affinity_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Fraction of a prompt that must be cached for affinity to apply, so that a shared system prompt alone does not
    count."""
    affinity_bound: Annotated[float, Meta(ge=1)] = 1.25
    """Load relative to the mean up to which a replica is chosen for its cache."""
    affinity_slack: Positive = 4
    """Load, in requests, up to which a replica is always chosen for its cache."""
    max_running: Positive | None = None
    """Maximum number of concurrent requests per replica; others wait in order of arrival. Default: unlimited."""
    health_interval: Seconds = 2.0
    """Interval between `/health` checks, in seconds."""
    health_timeout: Seconds = 2.0
    health_failures: Positive = 2
    """Consecutive failed checks that eject a replica. One success brings it back."""
    breaker_failures: Positive = 3
    """Consecutive failed requests that open a replica's breaker."""
    breaker_seconds: Seconds = 2.0
    """Seconds for which the breaker opens at first. Then one request probes; each failure doubles the time."""
    breaker_max_seconds: Seconds = 60.0

    def pool_settings(self) -> PoolSettings:
        return PoolSettings(
            policy=self.choice,
            max_running=self.max_running,
            affinity_blocks=self.affinity_blocks,
            affinity_share=self.affinity_share,
            affinity_bound=self.affinity_bound,
            affinity_slack=self.affinity_slack,
            breaker_failures=self.breaker_failures,
            breaker_seconds=self.breaker_seconds,
            breaker_max_seconds=self.breaker_max_seconds,
            wait_for_replica=self.wait_for_replica,
        )

    def key(self) -> str | None:
        """The API key, without surrounding white space; None if there is none. Raises `ConfigurationError` if `api_key_env` names
        an unset variable, or the key cannot be sent."""
        if self.api_key_env is None:
            return None if self.api_key is None else header_value(self.api_key, "api_key")
        named = f"The environment variable {self.api_key_env} (api_key_env)"
        key = header_value(os.environ.get(self.api_key_env, ""), named)
        if not key:
            raise ConfigurationError(
                f"api_key_env names {self.api_key_env}, which is not set in the environment."
            )
        return key


class RemoteConfig(PoolConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.remote]`. Times are in seconds."""

    dialect: DialectName | None = None
    """The kind of server. Default: detected."""
    model: str | None = None
    """The model's name on the servers. Default: the first that they list."""
    tokenizer: str | None = None
    """A `tokenizer.json`, a folder with one, or a hub id. Default: the model that the servers report."""
    max_model_len: Positive | None = None
    """Context length in tokens, prompt and output together. Default: what the servers report."""
    adapters: list[str] = []
    """LoRA adapters that the servers load on demand, in addition to those listed at start-up."""
    task: Literal["generate", "embed", "rerank"] | None = None
    """What the servers use the model for. Default: detected."""
    matryoshka: bool | None = None
    """Whether requests may set `dimensions`; vectors are then shortened by the gateway. Default: vLLM and SGLang
    decide, others reject it."""
    start_timeout: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds to wait for a first replica when the gateway starts."""
    tokens_only: bool = False
    """For vLLM started with `--tokens-only`. The gateway then matches stop strings, and features that need a tokenizer
    on the server (enforced outputs, bad_words) are rejected."""
    max_json_whitespace: Positive | None = None
    """Longest run of white space in enforced JSON, in characters, where xgrammar enforces. Default: 64 on vLLM, as in
    process; unlimited elsewhere."""
