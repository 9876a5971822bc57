"""The configuration of the `remote` engine, and the part of it that any engine behind HTTP has."""

from __future__ import annotations

import os
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from gateway.errors import ConfigurationError
from gateway_remote.choose import Policy
from gateway_remote.pool import PoolSettings

DialectName: TypeAlias = Literal["vllm-generate", "vllm", "sglang", "trtllm", "llamacpp"]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class PoolConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every engine with replicas behind HTTP can be told. Times are in seconds."""

    urls: list[str] = []
    """The replicas' addresses, as `http://host:8000`; a `path` of the model that is an address is one of them."""
    dns: str | None = None
    """An address whose host name stands for all replicas (a headless service of Kubernetes): one for each IP address
    that it resolves to, asked again and again."""
    file: str | None = None
    """A file with one address a line, `#` begins a comment; looked at again and again."""
    discovery_interval: Seconds = 5.0
    """How often `dns` and `file` are looked at."""
    api_key: str | None = None
    """Sent as a bearer token."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    headers: dict[str, str] = {}
    """Further headers of every request."""
    ca_file: str | None = None
    """A file of certificates to trust instead of the system's."""
    tls_verify: bool = True
    """Whether certificates are checked."""
    connect_timeout: Seconds = 3.0
    first_token_timeout: Seconds = 300.0
    """From sending a request to its first token, the engine's queue included; past it another replica is tried."""
    stall_timeout: Seconds = 60.0
    """Silence in the middle of a stream; past it the stream fails."""
    attempts: Positive = 4
    """How many replicas may break on one request before it fails. Those that cannot be reached do not count."""
    wait_for_replica: Annotated[float, Meta(ge=0)] = 2.0
    """How long a request waits for any replica to come back where none can serve."""
    hedge_after: Seconds | None = None
    """Without a first token after this time, the request is sent to a second replica too, and the quicker one is used;
    left out, never. It costs computing."""
    choice: Policy = "affinity"
    """`affinity`: where the longest beginning of the prompt has been read, unless that replica is overloaded, else as
    `power_of_two`: the less loaded of two at random. Or `least_loaded`, or `random`."""
    affinity_block: Positive = 32
    """Tokens that are compared at once."""
    affinity_blocks: Positive = 65536
    """Blocks that are remembered for each replica: about as many as its cache holds."""
    affinity_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """How much of a prompt a replica must have read to be chosen for its cache: everybody's system prompt is not enough."""
    affinity_bound: Annotated[float, Meta(ge=1)] = 1.25
    """How much more than the mean a replica may run and still be chosen for its cache."""
    affinity_slack: Positive = 4
    """Requests that a replica may run in any case and still be chosen for its cache."""
    max_running: Positive | None = None
    """Requests at once on each replica; further ones wait in order of arrival. Left out: no limit."""
    health_interval: Seconds = 2.0
    """How often each replica's `/health` is asked."""
    health_timeout: Seconds = 2.0
    health_failures: Positive = 2
    """Bad checks in a row that eject a replica; one good one brings it back."""
    breaker_failures: Positive = 3
    """Requests in a row that a replica fails before it is left alone."""
    breaker_seconds: Seconds = 2.0
    """For how long, at first; then one request tries it, and each failure doubles the time."""
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
        """The API key, if there is one. Raises `ConfigurationError` for a variable that is not set."""
        if self.api_key_env is None:
            return self.api_key
        key = os.environ.get(self.api_key_env)
        if not key:
            raise ConfigurationError(
                f"api_key_env names {self.api_key_env}, which is not set in the environment."
            )
        return key


class RemoteConfig(PoolConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.remote]`. Times are in seconds."""

    dialect: DialectName | None = None
    """The kind of server; left out, the servers are asked."""
    model: str | None = None
    """The servers' name of the model; left out, the first that they list."""
    tokenizer: str | None = None
    """A `tokenizer.json`, a folder with one, or a hub id; left out, what the servers say that they have loaded."""
    max_model_len: Positive | None = None
    """Tokens of prompt and output together; left out, what the servers say."""
    adapters: list[str] = []
    """LoRA adapters that the servers load when they are asked for them, besides those that they list at the start."""
    task: Literal["generate", "embed"] | None = None
    """What the servers do with the model; left out, they are asked."""
    matryoshka: bool | None = None
    """Whether requests may ask for shorter vectors (`dimensions`), which are then cut here; left out, vLLM and SGLang
    are told, and decide, and with others they may not."""
    start_timeout: Annotated[float, Meta(ge=0)] = 60.0
    """How long a first replica may take to come up when the gateway starts."""
    tokens_only: bool = False
    """For vLLM that was started with `--tokens-only`: stop strings are looked for in the gateway alone, and what needs a
    tokenizer over there (enforced outputs, bad_words) is refused."""
    max_json_whitespace: Annotated[int, Meta(ge=1)] | None = None
    """How many white-space characters may follow one another in enforced JSON, where xgrammar enforces; left out: on vLLM
    as many as in process (64), else any number."""
