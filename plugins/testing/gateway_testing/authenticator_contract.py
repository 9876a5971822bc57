"""The contract of authenticators."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

from gateway.base.errors import AuthenticationError, PermissionDenied
from gateway.plugins.protocols import Credentials, Principal, RequestAuthenticator
from gateway_doctor.checks.loop_watch import loop_stays_free
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.on_asyncio import OnAsyncio

HOSTILE: tuple[Mapping[str, str], ...] = (
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": "bearer \xff\xfe\x00"},
    {"authorization": "Basic dXNlcjpwYXNz"},
    {"authorization": "Bearer " + "a" * 16_000},
    {"authorization": "Bearer " + "." * 5_000},
    {"authorization": "Bearer a.b.c", "x-api-key": "' OR 1=1 --"},
)
"""Headers for which no authenticator returns a principal."""


@pytest.mark.anyio
class RequestAuthenticatorContract(ClosingContract, OnAsyncio):
    """Subclass this and provide the fixtures `authenticator` and `credentials`."""

    @pytest.fixture
    def authenticator(self) -> RequestAuthenticator:
        """The authenticator to test."""
        raise NotImplementedError("give a fixture authenticator")

    @pytest.fixture
    def credentials(self) -> Mapping[str, str]:
        """Headers of a request that the authenticator accepts."""
        raise NotImplementedError("give a fixture credentials")

    async def use_once(self, opened: RequestAuthenticator) -> None:
        with suppress(AuthenticationError, PermissionDenied):
            await opened.authenticate(Credentials(path="/v1/responses", headers=HOSTILE[-1]))

    async def test_it_finds_a_principal_and_always_the_same(
        self, authenticator: RequestAuthenticator, credentials: Mapping[str, str]
    ) -> None:
        request = Credentials(path="/v1/responses", headers=credentials)
        found = [await authenticator.authenticate(request) for _ in range(3)]
        assert isinstance(found[0], Principal)
        assert 0 < len(found[0].name) <= 256
        assert all(each == found[0] for each in found)

    @pytest.mark.parametrize("headers", HOSTILE, ids=range(len(HOSTILE)))
    async def test_it_refuses_what_it_does_not_know_or_asks_the_next(
        self, authenticator: RequestAuthenticator, headers: Mapping[str, str]
    ) -> None:
        """It raises no other error, and no such request gets a principal."""
        try:
            found = await authenticator.authenticate(
                Credentials(path="/v1/responses", headers=headers)
            )
        except (AuthenticationError, PermissionDenied):
            return
        assert found is None

    async def test_it_does_not_block_the_event_loop(
        self, authenticator: RequestAuthenticator, credentials: Mapping[str, str]
    ) -> None:
        """The authenticator is called for each request, on the event loop."""
        async with loop_stays_free("the authenticator"):
            await authenticator.authenticate(Credentials(path="/v1/responses", headers=credentials))
            await self.use_once(authenticator)

    async def test_changed_credentials_are_not_accepted(
        self, authenticator: RequestAuthenticator, credentials: Mapping[str, str]
    ) -> None:
        accepted = Credentials(path="/v1/responses", headers=credentials)
        right = await authenticator.authenticate(accepted)
        for name, value in credentials.items():
            wrong = Credentials(
                path="/v1/responses", headers={**credentials, name: value[:-1] + "~"}
            )
            try:
                found = await authenticator.authenticate(wrong)
            except (AuthenticationError, PermissionDenied):
                continue
            assert found is None or found != right
