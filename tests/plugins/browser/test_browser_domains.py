"""Which pages the domains of a request allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError
from gateway_browser.domains import DomainFilter, read_domains


def matches(entry: str, url: str) -> bool:
    """Whether an entry covers a page. Allowing and blocking it must agree."""
    domains = read_domains([entry], ())
    allowed = DomainFilter(allowed=domains).allows(url)
    assert DomainFilter(blocked=domains).allows(url) is not allowed
    assert not DomainFilter(allowed=domains, blocked=domains).allows(url)
    return allowed


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "https://example.com"),
        ("example.com", "https://EXAMPLE.com./a?b#c"),
        ("Example.COM.", "http://docs.example.com:8443/"),
        ("bücher.example", "https://xn--bcher-kva.example/"),
        ("xn--bcher-kva.example", "https://www.BÜCHER.example/"),
        ("example.com", "https://example。com/"),
        ("localhost", "http://localhost:80/"),
        ("127.0.0.1", "http://127.0.0.1:8080/x"),
        ("example.com/blog", "https://example.com/blog"),
        ("example.com/blog/", "https://www.example.com/blog/post-1"),
        ("example.com/blog", "https://example.com//blog/"),
        ("example.com/blog", "https://example.com/%62log"),
        ("example.com/blog", "https://example.com/x/../blog/100%25;v=1/a%3fb"),
        ("127.0.0.1", "http://127.1/"),
        ("127.1", "http://[::ffff:127.0.0.1]/"),
        ("faß.de", "https://xn--fa-hia.de/"),
        ("example.com/caf%C3%A9", "https://example.com/café/x"),
        ("example.com/", "https://example.com/any"),
    ],
)
def test_what_an_entry_covers(entry: str, url: str) -> None:
    assert matches(entry, url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "https://evilexample.com/"),
        ("example.com", "https://example.com.evil.net/"),
        ("example.com", "https://evil.net/example.com"),
        ("docs.example.com", "https://example.com/"),
        ("docs.example.com", "https://api.example.com/"),
        ("example.com/blog", "https://example.com/blogs"),
        ("example.com/blog", "https://example.com/blog/../news"),
        ("example.com/blog", "https://example.com/Blog"),
        ("example.com/blog", "https://example.com/"),
        ("fass.de", "https://faß.de/"),
        ("example.com", "https://xn--a..b/"),
        ("example.com", "https://xn--zzzz---/"),
    ],
)
def test_what_an_entry_does_not_cover(entry: str, url: str) -> None:
    assert not matches(entry, url)


@pytest.mark.parametrize(
    "entry",
    ["", " ", ".", "/x", "https://example.com", "example.com:8443", "a@example.com", "*.example.com", "example.com/*",
     ".com", "a..b", "a b.example", "example.com?x", "example.com/a?b", "ex%61mple.com", "[::1]", "a\\b", "ｅxample.com", "a.test/b;c", "a.test/b%3bc", "a.test/b%252fc", "a.test/%5cb",
     "x" * 2000],
)  # fmt: skip
def test_what_is_not_a_domain_is_refused(entry: str) -> None:
    with pytest.raises(GatewayError) as refused:
        read_domains(["good.example", entry], ("filters", "blocked_domains"))
    assert refused.value.at == ("filters", "blocked_domains", 1)


@pytest.mark.parametrize("url", ["", "https://", "https://[bad/", "https://exa mple.com/", "\0"])
def test_what_cannot_be_read_is_not_shown_if_domains_are_given(url: str) -> None:
    assert not DomainFilter(blocked=read_domains(["a.test"], ())).allows(url)
    assert DomainFilter().allows(url)


@pytest.mark.parametrize(
    "path",
    ["/blog/..;/secret", "/blog/..\\secret", "/blog/..%5csecret", "/blog/..%252fsecret", "/blog/%2e%2e/secret",
     "/secret/..;/blog", "/secret/..%2fblog", "/secret\\..\\blog", "/blog/..%2fsecret%2f..;%2fblog",
     "/blog/..%00/secret", "/blog/..%2500/secret", "/blog/%00../secret", "/blog/..%0a/secret", "/blog/..%20/secret", "/blog%7f/x",
     "/blog;x=1/post", "/x/..;/blog", "/\\blog", "/%2562log", "/;/blog", "/%25" + "25" * 20 + "62log"],
)  # fmt: skip
def test_a_path_that_servers_read_differently_is_neither_allowed_nor_unblocked(path: str) -> None:
    domains = read_domains(["blog.test/blog"], ())
    assert not DomainFilter(allowed=domains).allows(f"https://blog.test{path}")
    assert not DomainFilter(blocked=domains).allows(f"https://blog.test{path}")
    assert DomainFilter(blocked=domains).allows(f"https://other.test{path}")
    assert DomainFilter(allowed=read_domains(["blog.test"], ())).allows(f"https://blog.test{path}")


LABEL = st.from_regex("[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.lists(LABEL, min_size=1, max_size=3),
    st.lists(LABEL, max_size=2),
    st.lists(LABEL, max_size=3),
)
def test_a_blocked_domain_covers_every_subdomain_and_path(
    domain: list[str], below: list[str], path: list[str]
) -> None:
    name = ".".join([*domain, "example"])
    host = ".".join([*below, name])
    blocked = DomainFilter(blocked=read_domains([name.upper()], ()))
    assert not blocked.allows(f"https://{host}:1/{'/'.join(path)}")
    assert not blocked.allows_host(host)
    assert blocked.allows_host(f"x{name}")


def test_a_host_with_a_blocked_path_may_be_connected_to() -> None:
    assert DomainFilter(blocked=read_domains(["a.test/x"], ())).allows_host("a.test")
