"""PDFs that are encrypted (RC4, 128 bits), made of plain ones."""

from __future__ import annotations

import hashlib
import re

_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
_ID = bytes(16)
_RIGHTS = b"\xfc\xff\xff\xff"


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def _rc4_20(key: bytes, data: bytes) -> bytes:
    for number in range(20):
        data = _rc4(bytes(each ^ number for each in key), data)
    return data


def _md5(data: bytes, more: int = 0) -> bytes:
    found = hashlib.md5(data).digest()
    for _ in range(more):
        found = hashlib.md5(found).digest()
    return found


def encrypted_pdf(content: bytes, password: str) -> bytes:
    """`content`, whose only strings are in its streams, encrypted so that `password` opens it."""
    padded = (password.encode() + _PADDING)[:32]
    owner = _rc4_20(_md5(_PADDING, 50), padded)
    key = _md5(padded + owner + _RIGHTS + _ID, 50)
    user = _rc4_20(key, _md5(_PADDING + _ID)) + bytes(16)

    def encrypted(found: re.Match[bytes]) -> bytes:
        number = int(found[2]).to_bytes(3, "little")
        return found[1] + _rc4(_md5(key + number + bytes(2)), found[3])

    body = re.sub(
        rb"((\d+) 0 obj\n(?:(?!endobj).)*?stream\n)(.*?)(?=\nendstream)", encrypted, content, flags=re.DOTALL
    )  # fmt: skip
    entries = b"/ID [<%s> <%s>] /Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <%s> /U <%s> >>" % (
        _ID.hex().encode(), _ID.hex().encode(), owner.hex().encode(), user.hex().encode()
    )  # fmt: skip
    return body.replace(b"trailer\n<<", b"trailer\n<< " + entries)
