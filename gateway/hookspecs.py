"""Every hook that a plugin may implement: the plugin author's manual.

A plugin is a distribution with an entry point in the group `gateway`:

    [project.entry-points.gateway]
    mytool = "gateway_mytool"

The entry point's object (usually the module) carries functions marked with `@gateway.hookimpl`. All hooks are
synchronous and are called at start-up or once per response, never per token. A misspelt hook or argument stops the start
with a sentence. Import heavy libraries inside `open`, not at the top of the module: listing plugins imports every module.

Register hooks offer an implementation under a name; `gateway.toml` chooses by that name:

    class Config(msgspec.Struct, forbid_unknown_fields=True):
        greeting: str = "hello"

    @asynccontextmanager
    async def open_tool(config: Config) -> AsyncIterator[ToolServer]:
        yield GreetingTool(config.greeting)

    @hookimpl
    def gateway_register_tools(register: Register[OpenTool]) -> None:
        register("greeting", open_tool, config=Config)

`config` is a msgspec Struct; the tables of `gateway.toml` that belong to the plugin are decoded into it, and unknown keys
are refused with the nearest right name. What is opened (`engines`, `tools`, `stores`, `routes`, `resources`) is an asynchronous
context manager: entered at start-up only if selected, left at shutdown.

What several tools and fronts share is a resource. They say that they need it as they register, and are given it, by its
name, when they are opened:

    @asynccontextmanager
    async def open_tool(config: Config, *, containers: Containers) -> AsyncIterator[ToolServer]:
        yield ShellTool(config, containers)

    register("shell", open_tool, config=Config, needs=("containers",))
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pluggy
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.protocols import (
    Engine,
    Front,
    ModelInfo,
    ModelProfile,
    NoConfig,
    OutputFormat,
    PromptRenderer,
    ResponseStore,
    Tokenizer,
    ToolServer,
    ToolServers,
)
from gateway.wire.chat import ChatCompletion
from gateway.wire.response import Response, ResponseStatus

PROJECT = "gateway"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class EngineContext(Struct, frozen=True, kw_only=True):
    """What an engine is told of the model that it shall serve."""

    name: str
    """As clients name it."""
    path: str | None
    """The model: a file, a folder or a hub id, as `gateway.toml` or the command line has it; None: the engine's own."""
    max_model_len: int | None = None
    """A limit that the configuration sets, on prompt and output together."""


class ModelContext(Struct, frozen=True, kw_only=True):
    """What a renderer or a format may know of the model that it is made for."""

    info: ModelInfo
    tokenizer: Tokenizer | None
    trust_request_chat_template: bool = False


OpenEngine: TypeAlias = Callable[[Any, EngineContext], AbstractAsyncContextManager[Engine]]
MakeRenderer: TypeAlias = Callable[[Any, ModelContext], PromptRenderer]
MakeFormat: TypeAlias = Callable[[Any, ModelContext], OutputFormat]
OpenTool: TypeAlias = Callable[..., AbstractAsyncContextManager[ToolServer | ToolServers]]
OpenStore: TypeAlias = Callable[[Any], AbstractAsyncContextManager[ResponseStore]]
OpenFront: TypeAlias = Callable[..., AbstractAsyncContextManager[Front]]
OpenResource: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]

MakeT_contra = TypeVar("MakeT_contra", contravariant=True)
MakeT = TypeVar("MakeT")


class Register(Protocol[MakeT_contra]):
    """What a register hook is given. Call it once per implementation."""

    def __call__(
        self,
        name: str,
        make: MakeT_contra,
        *,
        config: type[Struct] = NoConfig,
        summary: str = "",
        aliases: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
    ) -> None:
        """Offer `make` under `name`.

        `config` is what the plugin's tables in `gateway.toml` are decoded into. `summary` is one line for
        `gateway plugins`. `aliases` are further names by which a configuration may choose it. `needs` names the
        resources that a tool or a front is given as it is opened, as keyword arguments. A name that another
        installed distribution offers stops the start with an error that names both.
        """
        ...


class Offer(Struct, Generic[MakeT], frozen=True, kw_only=True):
    """One registered implementation."""

    kind: str
    name: str
    make: MakeT
    config: type[Struct]
    summary: str
    plugin: str
    """The entry point's name."""
    distribution: str
    version: str
    needs: tuple[str, ...] = ()
    """The resources that `make` is given."""


@hookspec
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    """Offer engines: `make(config, context)` is an async context manager that yields an `Engine`.

    Called once, at start-up. A model of `gateway.toml` chooses one by `engine = "<name>"`; its table
    `[models.<model>.<name>]` is the config. Prove yours with `gateway.testing.EngineContract`.
    """


@hookspec
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    """Offer prompt renderers: `make(config, context)` gives a `PromptRenderer` for one model.

    Called once, at start-up. A model chooses one by `renderer = "<name>"`, or a model profile does.
    """


@hookspec
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    """Offer output formats: `make(config, context)` gives an `OutputFormat` for one model.

    Called once, at start-up. A model chooses one by `parser = "<name>"`, or a model profile does. Prove yours with
    `gateway.testing.OutputParserContract`.
    """


@hookspec
def gateway_register_tools(register: Register[OpenTool]) -> None:
    """Offer tool servers: `make(config)` is an async context manager that yields a `ToolServer`, or `ToolServers`.

    Called once, at start-up. A table `[tools.<name>]` in `gateway.toml` selects it, and is its config. One that has the
    method `use` (`gateway.protocols.UsesServices`) is handed what the gateway has, such as the `Embedder` of a configured
    model, once all is open. Prove yours with `gateway.testing.ToolServerContract`.
    """


@hookspec
def gateway_register_stores(register: Register[OpenStore]) -> None:
    """Offer stores: `make(config)` is an async context manager that yields a `ResponseStore`.

    Called once, at start-up. `store = "<name>"` under `[server]` chooses one; `[stores.<name>]` is its config. Prove
    yours with `gateway.testing.ResponseStoreContract`.
    """


@hookspec
def gateway_register_routes(register: Register[OpenFront]) -> None:
    """Offer further APIs in front of the same models: `make(config)` is an async context manager that yields a `Front`.

    Called once, at start-up. `routes` under `[server]` names those that are served; `[routes.<name>]` is the config.
    A front translates its requests into an `Ask`, and writes its answers from a parser's deltas by an `AnswerWriter`.
    Where `routes` is silent, a front is served that has the name of a selected tool, or of a resource that one needs.
    One that has the method `use` is handed what the gateway has, as tools are.
    """


@hookspec
def gateway_register_resources(register: Register[OpenResource]) -> None:
    """Offer what several tools and fronts share: `make(config)` is an async context manager that yields anything.

    Called once, at start-up. A resource is opened once in each process, if a selected tool or front `needs` it, before
    all of these, and closed after them. They are given the same object, as the keyword argument of its name, which is
    therefore an identifier. `[resources.<name>]` is its config. Its type is a matter between the distributions: who
    needs it depends on who offers it. What processes are to share, such as a folder, is the resource's to arrange.
    """


@hookspec(firstresult=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    """Say which renderer and output format `model` speaks, or None if you do not know it.

    Called once per model, at start-up, only where `gateway.toml` leaves something open. The first answer that is not
    None counts; a plugin that knows one family well should use `@hookimpl(tryfirst=True)`.
    """


@hookspec
def gateway_response_finished(response: Response) -> None:
    """Look at a response that has reached a terminal status. For metrics and audit.

    Called once per response, after it is stored and before its terminal event is sent. Must not block and must not
    change the response; an exception is logged and goes no further.
    """


@hookspec
def gateway_chat_finished(
    completion: ChatCompletion, status: ResponseStatus, error: GatewayError | None
) -> None:
    """Look at a chat completion that has ended: `completed`, `incomplete`, `failed` or `cancelled`. For metrics and audit.

    Called once per completion that began, streamed or plain, after it is stored and before its end is sent. It has the
    choices that were finished: of one that failed, with `error`, or whose client went away, there may be none. Must not
    block and must not change it; an exception is logged and goes no further. A hook may leave arguments out.
    """
