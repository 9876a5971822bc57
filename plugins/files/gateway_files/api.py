"""/v1/files."""

from __future__ import annotations

from gateway.sdk import GatewayError, Reply
from gateway.sdk.files import FileRoutes


class FilesApi(FileRoutes):
    """Satisfies `gateway.protocols.Api`."""

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)
