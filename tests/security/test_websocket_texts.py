"""WebSocket messages that are not text, whatever they claim to be."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.sync.client import connect

from gateway_testing.server import run_gateway

LONG = 120.0


def text(data: bytes, *, fin: bool = True) -> bytes:
    return Frame(Opcode.TEXT, data, fin=fin).serialize(mask=True)


def rest(data: bytes) -> bytes:
    return Frame(Opcode.CONT, data, fin=True).serialize(mask=True)


def test_a_text_that_is_not_utf_8_is_the_clients_error_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends its connection, as RFC 6455 demands, and is no error of the server: a flood of them would hide those that are."""
    config = {"models": {"m": {"engine": "scripted"}}}
    body = json.dumps({"type": "response.create", "model": "m", "input": "é"}, ensure_ascii=False)
    cut = body.encode().index("é".encode()) + 1
    with run_gateway(config, tmp_path) as gateway:
        url = gateway.base_url.replace("http", "ws") + "/responses"
        for frames in (
            text(b'{"type": "\xff"}'),
            text(b'{"type": "\xed\xa0\x80"}'),  # half of a surrogate pair
            text(body.encode()[:cut]),
            text(b"{", fin=False) + rest(b"\xc3"),
        ):
            with connect(url) as client:
                client.socket.sendall(frames)
                with pytest.raises(ConnectionClosed) as closed:
                    client.recv(LONG)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == CloseCode.INVALID_DATA
        with connect(url) as client:  # cut within a character, and whole
            client.socket.sendall(text(body.encode()[:cut], fin=False) + rest(body.encode()[cut:]))
            assert json.loads(client.recv(LONG))["type"] == "response.created"
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
