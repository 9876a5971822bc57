"""Loading and unloading LoRA adapters on the servers of a model."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.sdk import InvalidRequest
from gateway_remote.client import ReplicaClient
from gateway_remote.failures import ReplicaFailure
from gateway_remote.pool import Pool
from gateway_remote.replica import Endpoint

_ROUTES = {
    "vllm": "/v1/{}_lora_adapter",
    "vllm-generate": "/v1/{}_lora_adapter",
    "sglang": "/{}_lora_adapter",
}
"""The routes of the servers that have them, by dialect."""
LOAD_SECONDS = 300.0
"""Seconds that a server may take."""


class AdapterLoading:
    """Passes on requests for adapters to all servers that are known now."""

    def __init__(self, client: ReplicaClient, pool: Pool, dialect: str) -> None:
        self._client = client
        self._pool = pool
        self._route = _ROUTES.get(dialect)

    async def load(self, name: str, path: str) -> None:
        """Load an adapter on all servers; on none, if one refuses it. Raises `InvalidRequest` with the reason."""
        try:
            await self._ask_all("load", {"lora_name": name, "lora_path": path})
        except InvalidRequest:
            await self._ask_each("unload", {"lora_name": name})
            raise

    async def unload(self, name: str) -> None:
        """Unload an adapter on all servers. Those that do not have it are not an error."""
        await self._ask_each("unload", {"lora_name": name})

    async def _ask_all(self, verb: str, fields: dict[str, str]) -> None:
        for reason in await self._ask_each(verb, fields):
            if reason is not None:
                raise InvalidRequest(
                    f"An engine cannot {verb} the adapter '{fields['lora_name']}': {reason}",
                    param="lora_name",
                )

    async def _ask_each(self, verb: str, fields: dict[str, str]) -> list[str | None]:
        """The reason why each server did not do it; None if it did."""
        if self._route is None:
            return ["servers of this kind cannot load adapters while they run"]
        path, body = self._route.format(verb), msgspec.json.encode(fields)
        endpoints = [replica.endpoint for replica in self._pool.replicas]
        return await asyncio.gather(*(self._ask(each, path, body) for each in endpoints))

    async def _ask(self, where: Endpoint, path: str, body: bytes) -> str | None:
        try:
            status, said = await self._client.post(where, path, body, within=LOAD_SECONDS)
        except ReplicaFailure as failure:
            return str(failure)
        if status == 200:
            return None
        if status == 404:
            return "it has no route for that; start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
        return f"it answers {status}: {said[:500].decode(errors='replace')}"
