"""/v1/prompts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.sdk import (
    GatewayError,
    GatewayServices,
    InvalidRequest,
    NotFound,
    PromptTemplate,
    Reply,
    Route,
    RouteRequest,
    StoredPrompt,
)
from gateway.sdk.wire import convert, decode_body, decode_object
from gateway_prompts.config import PromptsConfig
from gateway_prompts.library import PromptLibrary, PromptRecord, Version, no_such_prompt
from gateway_prompts.objects import (
    CreatePrompt,
    PromptList,
    PromptObject,
    SetDefault,
    UpdatePrompt,
    check_declared,
)


class PromptsApi:
    """Implements `gateway.sdk.Api`, `PromptSource` and `ServicesUser`."""

    def __init__(self, config: PromptsConfig) -> None:
        self._config = config
        self._opened: PromptLibrary | None = None

    def use(self, services: GatewayServices) -> None:
        self._opened = PromptLibrary(services.values, self._config)

    @property
    def _library(self) -> PromptLibrary:
        assert self._opened is not None, "the gateway calls `use` before the first request"
        return self._opened

    @property
    def routes(self) -> Sequence[Route]:
        prompt = "/v1/prompts/{prompt:str}"
        default = f"{prompt}/set-default-version"
        update = Route(
            method="POST",
            path=prompt,
            handle=self.update,
            counted=True,
            takes=UpdatePrompt,
            answers=PromptObject,
        )
        set_default = Route(
            method="POST",
            path=default,
            handle=self.set_default,
            counted=True,
            takes=SetDefault,
            answers=PromptObject,
        )
        versions = f"{prompt}/versions"
        return (
            Route(
                method="POST",
                path="/v1/prompts",
                handle=self.create,
                counted=True,
                takes=CreatePrompt,
                answers=PromptObject,
            ),
            Route(method="GET", path="/v1/prompts", handle=self.list, answers=PromptList),
            Route(method="GET", path=prompt, handle=self.retrieve, answers=PromptObject),
            update,
            msgspec.structs.replace(update, method="PUT"),
            Route(method="DELETE", path=prompt, handle=self.delete, counted=True),
            Route(method="GET", path=versions, handle=self.versions, answers=PromptList),
            set_default,
            msgspec.structs.replace(set_default, method="PUT"),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)

    async def find_prompt(self, prompt_id: str, owner: str | None) -> StoredPrompt | None:
        record = await self._library.find(owner, prompt_id)
        if record is None:
            return None
        return StoredPrompt(
            default_version=str(record.default),
            versions={
                str(number): PromptTemplate(text=each.prompt, variables=each.variables)
                for number, each in enumerate(record.versions, start=1)
            },
        )

    async def create(self, request: RouteRequest) -> Reply:
        """Create a prompt."""
        wanted = convert(await decode_body(await request.body(), decode_object), CreatePrompt)
        version = _version(wanted)
        prompt_id, record = await self._library.create(request.owner, version)
        return Reply.json(_prompt_object(prompt_id, record, 1))

    async def list(self, request: RouteRequest) -> Reply:
        """List the default versions of all prompts, the latest prompt first."""
        found = await self._library.all(request.owner)
        return Reply.json(
            PromptList(
                data=[_prompt_object(each, record, record.default) for each, record in found]
            )
        )

    async def retrieve(self, request: RouteRequest) -> Reply:
        """Retrieve a version of a prompt; by default, its default version."""
        prompt_id, record = await self._find(request)
        number = _number(request.query.get("version"), record)
        return Reply.json(_prompt_object(prompt_id, record, number))

    async def versions(self, request: RouteRequest) -> Reply:
        """List all versions of a prompt."""
        prompt_id, record = await self._find(request)
        shown = [
            _prompt_object(prompt_id, record, number + 1) for number in range(len(record.versions))
        ]
        return Reply.json(PromptList(data=shown))

    async def update(self, request: RouteRequest) -> Reply:
        """Add a version to a prompt."""
        prompt_id = request.path_parameters["prompt"]
        wanted = convert(await decode_body(await request.body(), decode_object), UpdatePrompt)
        version = _version(wanted)

        def added(record: PromptRecord) -> PromptRecord:
            latest = len(record.versions)
            if wanted.version != latest:
                raise InvalidRequest(
                    f"'{wanted.version}' is not the latest version of the prompt '{prompt_id}'. Send the latest one, "
                    f"'{latest}'.",
                    param="version",
                    code="prompt_version_not_latest",
                )
            default = latest + 1 if wanted.set_as_default else record.default
            return PromptRecord(default=default, versions=[*record.versions, version])

        record = await self._library.change(request.owner, prompt_id, added)
        return Reply.json(_prompt_object(prompt_id, record, wanted.version + 1))

    async def set_default(self, request: RouteRequest) -> Reply:
        """Set the version of requests that name none."""
        prompt_id = request.path_parameters["prompt"]
        wanted = convert(await decode_body(await request.body(), decode_object), SetDefault)

        def changed(record: PromptRecord) -> PromptRecord:
            _check(wanted.version, record)
            return PromptRecord(default=wanted.version, versions=record.versions)

        record = await self._library.change(request.owner, prompt_id, changed)
        return Reply.json(_prompt_object(prompt_id, record, wanted.version))

    async def delete(self, request: RouteRequest) -> Reply:
        """Delete a prompt with all its versions."""
        await self._library.delete(request.owner, request.path_parameters["prompt"])
        return Reply(body=b"", status=204)

    async def _find(self, request: RouteRequest) -> tuple[str, PromptRecord]:
        prompt_id = request.path_parameters["prompt"]
        record = await self._library.find(request.owner, prompt_id)
        if record is None:
            raise no_such_prompt(prompt_id)
        return prompt_id, record


def _version(wanted: CreatePrompt | UpdatePrompt) -> Version:
    variables = list(dict.fromkeys(wanted.variables or ()))
    check_declared(wanted.prompt, variables)
    return Version(prompt=wanted.prompt, variables=variables)


def _number(sent: str | None, record: PromptRecord) -> int:
    if sent is None:
        return record.default
    if not sent.isascii() or not sent.isdecimal():
        raise InvalidRequest(
            f"Invalid 'version': '{sent[:100]}'. It is a whole number from 1.",
            param="version",
            code="invalid_value",
        )
    number = int(sent[:12])
    _check(number, record)
    return number


def _check(number: int, record: PromptRecord) -> None:
    if not 1 <= number <= len(record.versions):
        raise NotFound(
            f"The prompt has no version '{number}'.",
            param="version",
            code="prompt_version_not_found",
        )


def _prompt_object(prompt_id: str, record: PromptRecord, number: int) -> PromptObject:
    version = record.versions[number - 1]
    return PromptObject(
        prompt=version.prompt,
        version=number,
        prompt_id=prompt_id,
        variables=version.variables,
        is_default=number == record.default,
    )
