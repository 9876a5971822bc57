"""Transports that change what a protocol writes, and leave all else to the connection's transport."""

from __future__ import annotations

import asyncio
from typing import Any


class DelegatingTransport(asyncio.Transport):
    """A transport that passes every call on to `inner`."""

    __slots__ = ("inner",)

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self.inner = inner

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.inner.write(data)

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def is_closing(self) -> bool:
        return self.inner.is_closing()

    def is_reading(self) -> bool:
        return self.inner.is_reading()

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self.inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.inner.get_protocol()
