"""Patterns of origins: `*` stands for a part of one, and for nothing beyond it."""

from __future__ import annotations

import pytest

from gateway.http.cross_origin import cors_config


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("https://*.example.com", ["https://a.example.com", "https://a.b.example.com"],
         ["https://evil.com/.example.com", "https://evil.com?.example.com", "https://evil.com#.example.com",
          "https://evil.com\\.example.com", "https://user@evil.com/.example.com", "http://a.example.com",
          "https://a.example.com.evil.com", "https://xexample.com", "https://a.exampleXcom", "https://a.example.com\n"]),
        ("http://localhost:*", ["http://localhost:3000", "http://localhost:1"],
         ["http://localhost:1/x", "http://localhost.evil.com:1", "https://localhost:1"]),
        ("*://localhost", ["http://localhost", "tauri://localhost"], ["http://a/://localhost", "x://y://localhost"]),
        ("*.example.com", ["https://a.example.com", "http://a.b.example.com"],
         ["https://evil.com/.example.com", "https://a.example.com/x"]),
        ("chrome-extension://*", ["chrome-extension://abc"], ["https://abc", "chrome-extension://a/b"]),
        ("http://[*]:80", ["http://[::1]:80"], ["http://[/]:80"]),
        ("null", ["null"], ["nullx", "https://null"]),
        ("file://", ["file://"], ["file:///etc"]),
        ("https://app.example.com", ["https://app.example.com"], ["https://appxexample.com"]),
    ],
)  # fmt: skip
def test_a_star_is_a_part_of_an_origin(
    pattern: str, allowed: list[str], refused: list[str]
) -> None:
    config = cors_config([pattern, "https://other.example"])
    assert config is not None
    assert [origin for origin in allowed if not config.is_origin_allowed(origin)] == []
    assert [origin for origin in refused if config.is_origin_allowed(origin)] == []


def test_a_star_alone_is_any() -> None:
    config = cors_config(["*"])
    assert config is not None
    assert config.is_origin_allowed("https://anything.example")
