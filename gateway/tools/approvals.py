"""Approved tool calls: each approval request is signed by this server, and each approved call runs once.

The id of an `mcp_approval_request` is its signature: the time, 8 random bytes, and an HMAC-SHA256 of these, the owner,
the server, the tool and its arguments. A forged or changed request is thus detected without a store. An approval is
claimed as a shared value before its call runs, and the call's result is stored there.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath, StoreUnavailable
from gateway.plugins.protocols import SharedValues, ToolResult
from gateway.wire import items

logger = logging.getLogger("gateway.tools")

_PREFIX: Final = items.ID_PREFIXES[items.McpApprovalRequest]
_MADE, _NONCE, _MAC = 4, 8, 12
"""Number of bytes of each part of an id: Unix time, random bytes, HMAC. The id is as long as any other id."""
_MARGIN: Final = 3600.0
"""Seconds for which a claim outlives the expiry of its approval."""
_SETTLING: Final = 5.0
"""Seconds, in addition to the call's time limit, for storing the call's result."""
_KEY: Final = "approval_key"
_KEY_SECONDS: Final = 10 * 365 * 86_400.0


class _Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a used approval."""

    state: Literal["running", "done", "not_kept", "interrupted"]
    token: str
    """Random, so that no two claims are equal."""
    until: float
    """Unix time after which a call without a result has an unknown outcome."""
    result: str | None = None
    """Encrypted with a key derived from the approval request's id."""


class Approvals:
    """Signs approval requests, verifies approvals, and runs each approved call once."""

    def __init__(
        self,
        keys: Sequence[bytes],
        values: SharedValues,
        *,
        lifetime: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys[0]` signs; all keys verify. `lifetime` is in seconds. `clock` returns Unix time."""
        self._keys = [hashlib.sha256(b"litegate approvals\0" + key).digest() for key in keys]
        self._values = values
        self._lifetime = lifetime
        self._clock = clock
        self._settling: set[asyncio.Task[None]] = set()

    @classmethod
    async def create(
        cls, keys: Sequence[str], values: SharedValues, *, lifetime: float
    ) -> Approvals:
        """Create with the configured keys. If there are none, with a key on which all processes that share `values`
        agree."""
        if keys:
            return cls([key.encode() for key in keys], values, lifetime=lifetime)
        fresh = os.urandom(32)
        key = await values.compare_and_set(_KEY, fresh, expected=None, seconds=_KEY_SECONDS)
        return cls([key or fresh], values, lifetime=lifetime)

    def request_id(
        self,
        label: str,
        name: str,
        arguments: str,
        *,
        owner: str | None,
        addresses: Mapping[str, str],
    ) -> str:
        """The id of a new approval request. `addresses` is the result of `server_addresses`."""
        head = int(self._clock()).to_bytes(_MADE, "big") + os.urandom(_NONCE)
        mac = _mac(self._keys[0], head, owner, addresses.get(label, ""), label, name, arguments)
        return _PREFIX + (head + mac).hex()

    def check(
        self,
        request: items.McpApprovalRequest,
        param: ParamPath,
        *,
        owner: str | None,
        addresses: Mapping[str, str],
    ) -> None:
        """Raise `InvalidRequest`, naming `param`, if this server did not create exactly this `request`, or if it has
        expired."""
        made = _decoded(request.id)
        address = addresses.get(request.server_label, "")
        if made is None or not self._is_signed(made, request, owner, address):
            raise InvalidRequest(
                f"The approval request '{request.id[:100]}' was not made by this server, or not with this tool, these "
                "arguments, this server_label and server_url, and this API key. Send the mcp_approval_request and the "
                "tools as they were, or have the model ask again.",
                param=param,
                code="approval_request_not_valid",
            )
        if self._age(made) > self._lifetime:
            raise InvalidRequest(
                f"The approval request '{request.id}' is older than this server's limit of {self._lifetime:g} seconds. "
                "Have the model ask again.",
                param=param,
                code="approval_request_expired",
            )

    async def once(
        self,
        request_id: str,
        call: Callable[[], Awaitable[ToolResult]],
        *,
        owner: str | None,
        seconds: float,
    ) -> ToolResult:
        """The result of `call`, which runs only for the first use of the approval. Later uses get the same result.

        A use during the call waits for the result, for `seconds` plus a margin. If the process that ran the call was
        interrupted or died, the call may have taken effect; it is not run again, and the result says so. `call` must
        not raise.
        """
        made = _decoded(request_id)
        if made is None or self._age(made) > self._lifetime + _MARGIN / 2:
            return _not_run("The approval had expired before the call could be run.")
        name = "approval:" + hashlib.sha256(request_id.encode()).hexdigest()
        claim = _Claim(
            state="running",
            token=os.urandom(8).hex(),
            until=self._clock() + seconds + _SETTLING,
        )
        try:
            held = await self._set(name, claim, None, owner)
        except StoreUnavailable as error:
            logger.warning("an approved call was not run: %s", error.message)
            return _not_run(
                "The approval could not be recorded, because the store does not answer."
            )
        if held is None:
            return _not_run(
                "Too many of your approved calls are stored on this server. Try again after some have expired."
            )
        if held != claim:
            return await self._first_result(name, held, request_id, owner, seconds)
        over = msgspec.structs.replace(claim, state="interrupted")
        try:
            result = await call()
            sealed = _fernet(request_id).encrypt(msgspec.json.encode(result)).decode()
            over = msgspec.structs.replace(claim, state="done", result=sealed)
        finally:
            # A separate task, so that cancelling the caller does not wait for the store.
            task = asyncio.create_task(self._settle(name, claim, over, owner))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)
        return result

    async def _settle(self, name: str, claim: _Claim, over: _Claim, owner: str | None) -> None:
        try:
            if await self._set(name, over, claim, owner) != over:
                rest = msgspec.structs.replace(over, state="not_kept", result=None)
                await self._set(name, rest, claim, owner)
        except StoreUnavailable as error:
            logger.warning("the result of an approved call was not stored: %s", error.message)

    async def _first_result(
        self, name: str, held: _Claim, request_id: str, owner: str | None, seconds: float
    ) -> ToolResult:
        """Wait for the result of the first use of the approval."""
        loop = asyncio.get_running_loop()
        give_up, pause = loop.time() + seconds + _SETTLING, 0.02
        while held.state == "running":
            if loop.time() >= give_up or self._clock() >= held.until:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
            try:
                found = await self._values.get_value(name, owner=owner)
            except StoreUnavailable:
                continue
            if found is None:
                break
            held = msgspec.json.decode(found, type=_Claim)
        if held.state == "done" and held.result is not None:
            try:
                opened = _fernet(request_id).decrypt(held.result)
                return msgspec.json.decode(opened, type=ToolResult)
            except (InvalidToken, msgspec.MsgspecError):
                logger.warning("the result of an approved call cannot be read")
        if held.state in ("done", "not_kept"):
            return _not_run(
                "This approval was used before, and its call has been run. Its result was too large to be kept."
            )
        return _not_run(
            "This approval was used before. Its call was begun and has left no result, so it is unknown whether it has taken "
            "effect."
        )

    async def _set(
        self, name: str, claim: _Claim, before: _Claim | None, owner: str | None
    ) -> _Claim | None:
        held = await self._values.compare_and_set(
            name,
            msgspec.json.encode(claim),
            expected=None if before is None else msgspec.json.encode(before),
            seconds=self._lifetime + _MARGIN,
            owner=owner,
        )
        return None if held is None else msgspec.json.decode(held, type=_Claim)

    def _age(self, made: bytes) -> float:
        return self._clock() - int.from_bytes(made[:_MADE], "big")

    def _is_signed(
        self, made: bytes, request: items.McpApprovalRequest, owner: str | None, address: str
    ) -> bool:
        head, mac = made[:-_MAC], made[-_MAC:]
        what = request.server_label, request.name, request.arguments
        return any(
            hmac.compare_digest(mac, _mac(key, head, owner, address, *what)) for key in self._keys
        )


def _mac(
    key: bytes, head: bytes, owner: str | None, address: str, label: str, name: str, arguments: str
) -> bytes:
    said = msgspec.json.encode([owner, address, label, name, arguments])
    return hmac.digest(key, head + said, "sha256")[:_MAC]


def _decoded(request_id: str) -> bytes | None:
    """The bytes of an id; None if it does not have the right form."""
    digits = request_id.removeprefix(_PREFIX)
    if len(digits) != 2 * (_MADE + _NONCE + _MAC) or digits == request_id:
        return None
    try:
        made = bytes.fromhex(digits)
    except ValueError:
        return None
    # Accept only the canonical form: no upper-case digits, no spaces between them.
    return made if made.hex() == digits else None


def _fernet(request_id: str) -> Fernet:
    """Cipher keyed by the approval request's id, which is not stored with the result."""
    key = hashlib.sha256(b"litegate approval result\0" + request_id.encode()).digest()
    return Fernet(urlsafe_b64encode(key))


def _not_run(why: str) -> ToolResult:
    return ToolResult(text=f"{why} The call was not run now.", failed=True, fault="unavailable")
