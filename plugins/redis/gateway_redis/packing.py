"""Serialization of stored values: msgpack or JSON, after one byte for the format version."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from gateway.sdk import CallRecord, StoredCompletion, StoredResponse
from gateway.sdk.wire import Conversation, Item, encode

logger = logging.getLogger("gateway_redis")

T = TypeVar("T")

VERSION = b"\x01"
"""The format version that this release writes. Increase it when a change of the wire types makes old data unreadable.
"""

_ENCODER = msgspec.msgpack.Encoder()


def pack(value: object) -> bytes:
    """Serialize `value` as msgpack."""
    return VERSION + _ENCODER.encode(value)


def pack_json(value: object) -> bytes:
    """Serialize `value` as JSON. Used for a client's own JSON, whose numbers may be of any size."""
    return VERSION + encode(value)


class Unpacker(Generic[T]):
    """Deserializes the output of `pack` or `pack_json`."""

    def __init__(self, type_: object, *, json: bool = False) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] | msgspec.json.Decoder[T] = (
            msgspec.json.Decoder(type_) if json else msgspec.msgpack.Decoder(type_)
        )

    def __call__(self, packed: bytes, *, of: str) -> T | None:
        """The stored value. None, with a log message, if it cannot be read. `of` names the object for the message."""
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
    """Serialize ids; ids of responses that the gateway created take half their length."""
    return _ENCODER.encode([_packed_id(each) for each in ids])


def unpack_ids(packed: bytes) -> list[str]:
    return [each if isinstance(each, str) else _PREFIX + each.hex() for each in _IDS.decode(packed)]


def _packed_id(response_id: str) -> str | bytes:
    if len(response_id) == len(_PREFIX) + _DIGITS and response_id.startswith(_PREFIX):
        try:
            digits = bytes.fromhex(response_id[len(_PREFIX) :])
        except ValueError:
            return response_id
        if _PREFIX + digits.hex() == response_id:
            return digits
    return response_id
