"""Serialization of lists of ids. Other values are serialized by `gateway.sdk.stores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

_ENCODER = msgspec.msgpack.Encoder()
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
