"""Serialization of stored values: msgpack or JSON, after one byte for the format version."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Generic, TypeVar

import msgspec

from gateway.plugins.protocols import CallRecord, StoredCompletion, StoredResponse
from gateway.wire.common import encode
from gateway.wire.items import Item
from gateway.wire.response import Conversation

logger = logging.getLogger("gateway.storage")

T = TypeVar("T")

VERSION: Final = b"\x01"
"""The format version that this release writes. Increase it when a change of the wire types makes old data unreadable.
"""

_ENCODER = msgspec.msgpack.Encoder()
_LARGEST: Final = int(sys.float_info.max)


def pack(value: object) -> bytes:
    """Serialize `value` as msgpack. Integers of more than 64 bits, which schemas and arguments may contain, become
    floats."""
    try:
        return VERSION + _ENCODER.encode(value)
    except OverflowError:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
        return VERSION + _ENCODER.encode(_narrowed(plain))


def _narrowed(value: Any) -> Any:
    if type(value) is dict:
        return {key: _narrowed(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return [_narrowed(each) for each in value]
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return float(max(-_LARGEST, min(value, _LARGEST)))
    return value


def pack_json(value: object) -> bytes:
    """Serialize `value` as JSON. Used for JSON of clients, whose numbers may be of any size."""
    return VERSION + encode(value)


class Unpacker(Generic[T]):
    """Deserializes the output of `pack` or `pack_json`."""

    def __init__(self, type_: object, *, json: bool = False) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] | msgspec.json.Decoder[T] = (
            msgspec.json.Decoder(type_) if json else msgspec.msgpack.Decoder(type_)
        )

    def __call__(self, packed: bytes, *, of: str) -> T | None:
        """Deserialize a stored value. Returns None and logs a message if it cannot be read; `of` names the object
        there."""
        if packed[:1] != VERSION:
            logger.warning("%s is stored in a form that this version does not read", of)
            return None
        try:
            return self._decoder.decode(memoryview(packed)[1:])
        # For text that is not UTF-8, msgspec raises Python's UnicodeDecodeError.
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            logger.warning("%s cannot be read: %s", of, error)
            return None


unpack_record: Unpacker[StoredResponse] = Unpacker(StoredResponse)
unpack_items: Unpacker[list[Item]] = Unpacker(list[Item])
unpack_results: Unpacker[dict[str, CallRecord]] = Unpacker(dict[str, CallRecord])
unpack_item: Unpacker[Item] = Unpacker(Item)
unpack_conversation: Unpacker[Conversation] = Unpacker(Conversation)
unpack_completion: Unpacker[StoredCompletion] = Unpacker(StoredCompletion, json=True)
unpack_metadata: Unpacker[dict[str, str]] = Unpacker(dict[str, str], json=True)
