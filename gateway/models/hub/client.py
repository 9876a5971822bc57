"""Requests to a hub: its address and credentials, its file lists, and streams of files."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.net.guard import is_private, refusal
from gateway.base.net.header_values import header_value
from gateway.base.net.retry_after import wanted_wait
from gateway.config.hub_names import HubName, parse_name
from gateway.config.tables import nearest
from gateway.models.hub.repository import Repository, RepositoryListing, TreeEntry, is_commit

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("gateway.models.hub")
T = TypeVar("T")

LISTING_BYTES = 16 * 1024 * 1024
"""Maximum size of a file list in bytes."""
MAX_PAGES = 100
"""Maximum number of pages of a file list. A page of the hub has 1000 files."""
PAGES_BYTES = 64 * 1024 * 1024
"""Maximum size of all pages of a file list in bytes."""
PAGES_SECONDS = 300.0
"""Time limit in seconds for all pages of a file list."""
LISTING_SECONDS = 60.0
"""Time limit in seconds for a file list, from its first byte on."""
MAX_REDIRECTS = 5
ATTEMPTS = 3
"""Maximum number of requests for a file list, if the hub says when to retry."""
LONGEST_WAIT = 20.0
"""Maximum time in seconds after which a request is retried. If the hub demands a longer time, it is not retried."""
SECONDS = 10.0
"""Time limit in seconds for connecting, and for each read. `HF_HUB_DOWNLOAD_TIMEOUT` replaces it."""


class HubUnreachable(Exception):
    """The hub does not answer, or fails. The message is a phrase that describes the failure.

    `retry_after` is the number of seconds after which the hub allows a retry; None if it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def wait(self) -> float | None:
        """`retry_after`, or None if it is longer than `LONGEST_WAIT`."""
        return (
            None
            if self.retry_after is None or self.retry_after > LONGEST_WAIT
            else self.retry_after
        )


class HubRefusal(Exception):
    """The hub refuses access to a repository or file. `status` is the HTTP status, `code` the hub's error code (such as
    `GatedRepo`), or an empty string."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code} {message}".strip())
        self.status = status
        self.code = code
        self.message = message


class HubAnswerInvalid(Exception):
    """The hub's answer is invalid. The message is a phrase that says why."""


class _Found(Struct):
    id: str


class _Page(Struct, Generic[T], frozen=True):
    """A page of an answer."""

    content: T
    following: str
    """The query string of the next page; an empty string if there is none."""
    size: int
    """Size of the page in bytes, as received."""


class Hub(Struct, frozen=True, kw_only=True):
    """A hub and the local cache of its files."""

    endpoint: str
    """The URL of the hub, without a slash at its end."""
    cache: Path
    """The folder that all libraries of the hub share."""
    offline: bool = False
    """Whether only the cache may be used."""
    headers: Mapping[str, str] = {}
    """Headers of each request to the hub itself, including the credentials."""
    timeout: float = SECONDS

    @classmethod
    def from_environment(cls) -> Hub:
        """The hub that `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_HOME` and the hub's other variables select.

        Raises `ConfigurationError` if `huggingface_hub` is not installed, or the token cannot be sent.
        """
        try:
            from huggingface_hub import constants
            from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented
        except ImportError as error:
            raise ConfigurationError(
                "Models of the hub need the package huggingface_hub: pip install 'litegate[hub]'."
            ) from error
        return cls(
            endpoint=constants.ENDPOINT,
            cache=Path(constants.HF_HUB_CACHE).expanduser(),
            offline=constants.is_offline_mode(),
            headers=_with_clean_token(build_hf_headers(library_name="litegate")),
            timeout=float(constants.HF_HUB_DOWNLOAD_TIMEOUT),
        )

    @property
    def has_token(self) -> bool:
        """Whether requests carry credentials."""
        return any(name.lower() == "authorization" for name in self.headers)

    def repository(self, name: HubName) -> Repository:
        """The current file list of a repository. If the hub says when to retry, sends up to `ATTEMPTS` requests.

        Raises `HubUnreachable`, `HubRefusal` or `HubAnswerInvalid`.
        """
        listing = self._listed(f"{name.repo}/revision/main?blobs=true", RepositoryListing)
        if listing.lacks_sizes and is_commit(listing.sha):
            listing = listing.completed(self._tree(name, listing))
        try:
            return listing.repository(name.repo)
        except ValueError as error:
            raise HubAnswerInvalid("its file list cannot be read") from error

    def _tree(self, name: HubName, listing: RepositoryListing) -> list[TreeEntry]:
        """The files, from the hub's other list. Mirrors may omit sizes and hashes from the first list."""
        path = f"{name.repo}/tree/{quote(listing.sha, safe='')}"
        found: list[TreeEntry] = []
        query, size = "recursive=true", 0
        deadline = time.monotonic() + PAGES_SECONDS
        for _ in range(MAX_PAGES):
            try:
                page = self._page(f"{path}?{query}", list[TreeEntry])
            except (HubRefusal, HubAnswerInvalid) as error:
                raise HubAnswerInvalid("its file list has no sizes and hashes") from error
            found += page.content
            query, size = page.following, size + page.size
            if not query:
                return found
            if size > PAGES_BYTES:
                raise HubAnswerInvalid("its file list is larger than 64 MiB")
            if time.monotonic() > deadline:
                raise HubUnreachable("its file list does not arrive in time")
        raise HubAnswerInvalid(f"its file list has more than {MAX_PAGES} pages")

    def _listed(self, rest: str, form: type[T]) -> T:
        """The answer to a request about a repository, decoded as `form`."""
        return self._page(rest, form).content

    def _page(self, rest: str, form: type[T]) -> _Page[T]:
        """The answer to a request about a repository, decoded as `form`, with the query of its next page."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                content, following = self._api(rest)
                return _Page(msgspec.json.decode(content, type=form), following, len(content))
            except HubUnreachable as error:
                if error.wait is None or attempt == ATTEMPTS:
                    raise
                logger.info("%s: %s; trying again after %.0f s", self.endpoint, error, error.wait)
                time.sleep(error.wait)
            except ValueError as error:
                raise HubAnswerInvalid("its file list cannot be read") from error
        raise AssertionError("the last attempt returns or raises")

    def search(self, text: str) -> list[str]:
        """The names of repositories that the hub finds for `text`. Empty if its answer is invalid."""
        try:
            content, _ = self._api(f"?search={quote(text, safe='')}&limit=50")
            found = msgspec.json.decode(content, type=list[_Found])
        except (HubUnreachable, HubRefusal, HubAnswerInvalid, ValueError):
            return []
        return [each.id for each in found if parse_name(f"hf:{each.id}") is not None]

    def _api(self, rest: str) -> tuple[bytearray, str]:
        """The answer to a request about models, and the query string of its next page; an empty string if there is
        none.

        The rest of the next page's address is not used: a mirror may return addresses of the hub that it mirrors.
        """
        slash = "" if rest.startswith("?") else "/"
        url = f"{self.endpoint}/api/models{slash}{rest}"
        content = bytearray()
        with self.stream(url, same_host=True) as response:
            following = response.links.get("next", {}).get("url", "")
            deadline = time.monotonic() + LISTING_SECONDS
            for chunk in response.iter_bytes():
                content += chunk
                if time.monotonic() > deadline:
                    raise HubUnreachable("its file list does not arrive in time")
                if len(content) > LISTING_BYTES:
                    raise HubAnswerInvalid("its file list is larger than 16 MiB")
        return content, following.partition("?")[2].partition("#")[0]

    def file_url(self, repository: Repository, name: str) -> str:
        """The URL of a file's content."""
        return f"{self.endpoint}/{repository.repo}/resolve/{repository.commit}/{quote(name)}"

    @contextmanager
    def stream(
        self, url: str, *, same_host: bool = False, offset: int = 0
    ) -> Iterator[httpx.Response]:
        """The answer to a GET request, from byte `offset` on, after redirects. Its status is 200 or 206.

        Credentials are only sent to the host of the hub. Redirects from a public hub to a private address, and from
        https to http, are rejected; with `same_host`, also redirects to other hosts. Raises like `repository`.
        """
        from huggingface_hub import get_session

        # The HTTP library of huggingface_hub, which differs in its version 2.
        from huggingface_hub.utils import httpx

        session = get_session()
        origin = url
        try:
            for _ in range(MAX_REDIRECTS + 1):
                request = session.build_request(
                    "GET", url, headers=self._headers(url, origin, offset), timeout=self.timeout
                )
                response = session.send(request, stream=True, follow_redirects=False)
                try:
                    if response.has_redirect_location:
                        url = _joined(url, response.headers["location"])
                        check_redirect(origin, url, same_host=same_host)
                        continue
                    self._check(response)
                    yield response
                    return
                finally:
                    response.close()
        except (httpx.TimeoutException, TimeoutError) as error:
            raise HubUnreachable("it does not answer in time") from error
        except httpx.ConnectError as error:
            raise HubUnreachable(f"no connection: {_reason(error)}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise HubUnreachable(_reason(error)) from error
        raise HubAnswerInvalid(f"it redirects more than {MAX_REDIRECTS} times")

    def _headers(self, url: str, origin: str, offset: int) -> dict[str, str]:
        own = self.headers if _origin(url) == _origin(origin) else {}
        headers = {**own, "accept-encoding": "identity"}
        return {**headers, "range": f"bytes={offset}-"} if offset else headers

    def _check(self, response: httpx.Response) -> None:
        """Raise the error for any status other than 200 and 206."""
        status = response.status_code
        if status in (200, 206):
            if response.headers.get("content-type", "").lower().startswith("text/html"):
                raise HubUnreachable(
                    "a web page came in place of its answer, as from the sign-in page of a network or a proxy"
                )
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise HubAnswerInvalid("it compresses, which was not asked for")
            return
        if status == 429 or status >= 500:
            seconds = wanted_wait(response.headers.get("retry-after"))
            wait = None if seconds is None else max(0.0, seconds)
            raise HubUnreachable(f"it answers with status {status}", wait)
        code = response.headers.get("x-error-code", "")
        message = response.headers.get("x-error-message", "")
        raise HubRefusal(status, _printable(code), _printable(message))


def check_redirect(origin: str, target: str, *, same_host: bool) -> None:
    """Raise `HubAnswerInvalid` if a hub at `origin` must not redirect to `target`."""
    try:
        there, port = urlsplit(target), urlsplit(target).port
    except ValueError as error:
        raise HubAnswerInvalid("it redirects to an invalid URL") from error
    here = urlsplit(origin)
    if there.scheme not in ("http", "https") or not there.hostname:
        raise HubAnswerInvalid("it redirects to an invalid URL")
    if here.scheme == "https" and there.scheme != "https":
        raise HubAnswerInvalid("it redirects to a URL without TLS")
    if there.hostname == here.hostname:
        return
    if same_host:
        raise HubAnswerInvalid("it redirects to another host")
    own = _addresses(here.hostname or "", here.port)
    allow_private = own != [] and all(map(is_private, own))
    for address in _addresses(there.hostname, port):
        if (kind := refusal(address, allow_private=allow_private)) is not None:
            raise HubAnswerInvalid(f"it redirects to a {kind} address")


def refusal_sentence(refused: HubRefusal, name: HubName, hub: Hub, known: list[str]) -> str:
    """A sentence that says what to do about a refused repository. `known` are the names of similar and of cached
    ones."""
    page = f"{hub.endpoint}/{name.repo}"
    if refused.code == "GatedRepo":
        if hub.has_token:
            return (
                f"{name.repo} is gated, and the account of HF_TOKEN has no access: ask for it at {page}, then try again."
            )  # fmt: skip
        return (
            f"{name.repo} is gated: accept its terms at {page}, and set HF_TOKEN to a token of that account "
            f"({hub.endpoint}/settings/tokens)."
        )
    if refused.status == 401 and "credentials" in refused.message:
        return f"{hub.endpoint} does not accept the token in HF_TOKEN; set a valid one, or none."
    if refused.code == "RevisionNotFound":
        return f"{name.repo} has no files at {hub.endpoint}; name another repository."
    if refused.code == "EntryNotFound":
        return f"{name.repo} no longer has a file that its list names; try again."
    if refused.code == "RepoNotFound" or refused.status in (401, 404):
        near = nearest(name.repo, known)
        hint = f"did you mean {near}? Otherwise check" if near is not None else "check"
        private = (
            "or whether the account of HF_TOKEN may read it"
            if hub.has_token
            else "or set HF_TOKEN if it is private"
        )
        where = (
            f"{hub.endpoint} has no repository {name.repo}"
            if name.explicit
            else f"there is no file or folder {str(name)!r} here, and {hub.endpoint} has no repository {name.repo}"
        )
        return f"{where}: {hint} the spelling, {private}."
    detail = f" ({refused.message})" if refused.message else ""
    return f"{hub.endpoint} refuses {name.repo} with status {refused.status}{detail}."


def _addresses(host: str, port: int | None) -> list[str]:
    """The addresses of a host. Empty if this machine cannot resolve it; a proxy may be able to."""
    try:
        found = socket.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in found]


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise HubAnswerInvalid("it redirects to an invalid URL") from error


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _reason(error: Exception) -> str:
    return _printable(str(error)) or type(error).__name__


def _printable(text: str) -> str:
    """`text` on one line, without control characters, and shortened."""
    return "".join(each if each.isprintable() else " " for each in text)[:200].strip()


def _with_clean_token(headers: Mapping[str, str]) -> dict[str, str]:
    """`headers`, with surrounding whitespace removed from the token: files written by editors may contain it."""
    clean = dict(headers)
    for name, value in headers.items():
        if name.lower() == "authorization":
            scheme, _, token = value.partition(" ")
            clean[name] = f"{scheme} {header_value(token, 'The token of the hub (HF_TOKEN)')}"
    return clean
