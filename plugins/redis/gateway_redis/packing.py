"""What is stored, as bytes: msgpack or JSON, after one byte that is the version of the form."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from gateway.protocols import CallRecord, StoredCompletion, StoredResponse
from gateway.wire.common import encode
from gateway.wire.items import Item
from gateway.wire.response import Conversation

logger = logging.getLogger("gateway_redis")

T = TypeVar("T")

VERSION = b"\x01"
"""Of what this release writes. A change of the wire types that old bytes do not fit needs a new one."""

_ENCODER = msgspec.msgpack.Encoder()


def pack(value: object) -> bytes:
    """`value` as it is stored."""
    return VERSION + _ENCODER.encode(value)


def pack_json(value: object) -> bytes:
    """Likewise, as JSON: for what holds a client's own JSON, whose numbers may be of any size."""
    return VERSION + encode(value)


class Unpacker(Generic[T]):
    """Reads what `pack` wrote, or `pack_json`."""

    def __init__(self, type_: object, *, json: bool = False) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] | msgspec.json.Decoder[T] = (
            msgspec.json.Decoder(type_) if json else msgspec.msgpack.Decoder(type_)
        )

    def __call__(self, packed: bytes, *, of: str) -> T | None:
        """What was stored; None, with a line in the log, for what cannot be read. `of` says whose it is."""
        if packed[:1] != VERSION:
            logger.warning("%s is stored in a form that this version does not read", of)
            return None
        try:
            return self._decoder.decode(memoryview(packed)[1:])
        except msgspec.MsgspecError as error:
            logger.warning("%s cannot be read: %s", of, error)
            return None


unpack_record: Unpacker[StoredResponse] = Unpacker(StoredResponse)
unpack_items: Unpacker[list[Item]] = Unpacker(list[Item])
unpack_results: Unpacker[dict[str, CallRecord]] = Unpacker(dict[str, CallRecord])
unpack_item: Unpacker[Item] = Unpacker(Item)
unpack_conversation: Unpacker[Conversation] = Unpacker(Conversation)
unpack_completion: Unpacker[StoredCompletion] = Unpacker(StoredCompletion, json=True)
unpack_metadata: Unpacker[dict[str, str]] = Unpacker(dict[str, str], json=True)
_IDS: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])

_PREFIX = "resp_"
_DIGITS = 48


def pack_ids(ids: Sequence[str]) -> bytes:
    """Ids; those of responses that the gateway made in half of their length."""
    return _ENCODER.encode([_short(each) for each in ids])


def unpack_ids(packed: bytes) -> list[str]:
    return [each if isinstance(each, str) else _PREFIX + each.hex() for each in _IDS.decode(packed)]


def _short(response_id: str) -> str | bytes:
    if len(response_id) == len(_PREFIX) + _DIGITS and response_id.startswith(_PREFIX):
        try:
            digits = bytes.fromhex(response_id[len(_PREFIX) :])
        except ValueError:
            return response_id
        if _PREFIX + digits.hex() == response_id:
            return digits
    return response_id
