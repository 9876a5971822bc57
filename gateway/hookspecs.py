"""Every hook that a plugin may implement: the plugin author's manual.

A plugin is a distribution with an entry point in the group `gateway`:

    [project.entry-points.gateway]
    mytool = "gateway_mytool"

The entry point's object (usually the module) carries functions marked with `@gateway.hookimpl`. All hooks are
synchronous and are called at start-up or once per response, never per token. A misspelt hook or argument is an error at
start-up. Import heavy libraries inside `open`, not at the top of the module: listing plugins imports every module.

Register hooks register an implementation under a name; `gateway.toml` chooses by that name:

    class Config(msgspec.Struct, forbid_unknown_fields=True):
        greeting: str = "hello"

    @asynccontextmanager
    async def open_tool(config: Config) -> AsyncIterator[ToolServer]:
        yield GreetingServer(config.greeting)

    @hookimpl
    def gateway_register_tools(register: Register[OpenTool]) -> None:
        register("greeting", open_tool, config=Config)

`config` is a msgspec Struct; the plugin's tables in `gateway.toml` are decoded into it. An unknown key is an error that
names the nearest valid key. Engines, tools, stores, APIs and resources are asynchronous context managers, entered at
start-up only if selected and left at shutdown.

A resource is an object that several tools and APIs share. They declare with `needs` that they use it, and receive it as
the keyword argument of its name when they are opened:

    @asynccontextmanager
    async def open_tool(config: Config, *, containers: Containers) -> AsyncIterator[ToolServer]:
        yield ShellServer(config, containers)

    register("shell", open_tool, config=Config, needs=("containers",))
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeVar

import pluggy
from msgspec import Struct

from gateway.errors import ConfigurationError, GatewayError
from gateway.protocols import (
    AnswerUsage,
    Api,
    Engine,
    ModelInfo,
    ModelProfile,
    NoConfig,
    OutputFormat,
    Policy,
    PromptRenderer,
    RequestAuthenticator,
    ResponseStore,
    Router,
    Tokenizer,
    ToolServer,
    Tracer,
)
from gateway.wire.chat import ChatCompletion
from gateway.wire.response import Response, ResponseStatus

PROJECT = "gateway"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Registry(Protocol):
    """The engines, renderers and parsers of all plugins, for one that is made of others, such as a parser that wraps another.

    `options` is the table of the one that is asked for, as it would stand in `gateway.toml`. The methods raise
    `ConfigurationError` for a name that no plugin offers, wrong options, one that cannot be made, and one that would be a part
    of itself.
    """

    def names(self, kind: Literal["engine", "renderer", "parser"]) -> Sequence[str]:
        """All names of a kind, in alphabetic order, aliases included."""
        ...

    def engine(
        self, name: str, context: EngineContext, options: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[Engine]:
        """Open the engine with that name for the model of `context`, in this process. It is closed when the context manager is
        left. Raises on entering."""
        ...

    def renderer(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> PromptRenderer:
        """The renderer with that name, for the model of `context`."""
        ...

    def parser(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> OutputFormat:
        """The output format with that name, for the model of `context`."""
        ...


class _NoRegistry:
    """The registry of a context that the gateway has not made, as in a test."""

    def names(self, kind: Literal["engine", "renderer", "parser"]) -> Sequence[str]:
        return ()

    def engine(self, name: str, *_: object) -> NoReturn:
        self._refuse("engine", name)

    def renderer(self, name: str, *_: object) -> NoReturn:
        self._refuse("renderer", name)

    def parser(self, name: str, *_: object) -> NoReturn:
        self._refuse("parser", name)

    def _refuse(self, kind: str, name: str) -> NoReturn:
        raise ConfigurationError(
            f"the context of this model has no registry in which to find the {kind} {name!r}; a test makes one with "
            "gateway_testing.PluginRegistry(load_plugins())."
        )


_NO_REGISTRY: Final = _NoRegistry()


class EngineContext(Struct, frozen=True, kw_only=True):
    """The model that an engine serves, as configured."""

    name: str
    """The model's name as clients use it."""
    path: str | None
    """The model: a file, a folder, a URL or a name of the hub, from `gateway.toml` or the command line. None: the engine's
    default. `gateway.sdk.hub` finds and downloads models of the hub."""
    max_model_len: int | None = None
    """Configured limit on prompt and output together."""
    compile_seconds: float = 10.0
    """Time limit for compiling the constraints of one request, in seconds (`[server.schemas]`)."""
    registry: Registry = _NO_REGISTRY
    """For an engine that is made of others."""


class ModelContext(Struct, frozen=True, kw_only=True):
    """The model of a renderer or a format."""

    info: ModelInfo
    tokenizer: Tokenizer | None
    trust_request_chat_template: bool = False
    registry: Registry = _NO_REGISTRY
    """For a renderer or a format that is made of others."""


OpenEngine: TypeAlias = Callable[[Any, EngineContext], AbstractAsyncContextManager[Engine]]
MakeRenderer: TypeAlias = Callable[[Any, ModelContext], PromptRenderer]
MakeFormat: TypeAlias = Callable[[Any, ModelContext], OutputFormat]
OpenTool: TypeAlias = Callable[..., AbstractAsyncContextManager[ToolServer]]
OpenStore: TypeAlias = Callable[[Any], AbstractAsyncContextManager[ResponseStore]]
OpenApiPlugin: TypeAlias = Callable[..., AbstractAsyncContextManager[Api]]
OpenResource: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
OpenPolicy: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Policy]]
OpenAuthenticator: TypeAlias = Callable[[Any], AbstractAsyncContextManager[RequestAuthenticator]]
OpenRouter: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Router]]
RunCommand: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command with its parsed arguments. Returns the exit code."""
MakeCommand: TypeAlias = Callable[[argparse.ArgumentParser], RunCommand]
"""Adds a command's arguments to its parser. Returns the function that runs it."""

MakeT_contra = TypeVar("MakeT_contra", contravariant=True)
MakeT = TypeVar("MakeT")
StructT = TypeVar("StructT", bound=Struct)


class Register(Protocol[MakeT_contra]):
    """The argument of a register hook. Call it once per implementation."""

    def __call__(
        self,
        name: str,
        make: MakeT_contra,
        *,
        config: type[Struct] = NoConfig,
        summary: str = "",
        aliases: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
        needs_tool: bool = False,
        process: Literal["server", "shared", "own"] = "shared",
    ) -> None:
        """Register `make` under `name`.

        `config` is the Struct that the plugin's tables in `gateway.toml` are decoded into. `summary` is one line for
        `gateway plugins`. `aliases` are further names by which a configuration may choose it. `needs` names the
        resources that are passed to a tool or an API when it is opened, as keyword arguments. `needs_tool` is for APIs: a
        configuration that has the API must have the tool of the same name. `process` is for engines: where
        they run if the configuration does not say. `shared`: with several workers in a process of their own, which all
        workers share, and otherwise in the server process. `own`: also if the model is loaded on demand, because loading it
        keeps the server process from answering. `server`: always in the server process, for engines that only call
        another server, and those that take messages. If another installed
        distribution registers the same name, the start fails with an error that names both.
        """
        ...


class RegisterCommand(Protocol):
    """The argument of `gateway_register_commands`. Call it once per command."""

    def __call__(self, name: str, make: MakeCommand, *, summary: str) -> None:
        """Register `gateway <name>`. `summary` is its line in `gateway --help`."""
        ...


class Offer(Struct, Generic[MakeT], frozen=True, kw_only=True):
    """One registered implementation."""

    kind: str
    name: str
    make: MakeT
    config: type[Struct]
    summary: str
    plugin: str
    """The name of the plugin's entry point."""
    distribution: str
    version: str
    needs: tuple[str, ...] = ()
    """The resources that are passed to `make`."""
    needs_tool: bool = False
    """Whether an API is of use only with the tool of its name."""
    process: Literal["server", "shared", "own"] = "shared"
    """Where an engine runs: see `Register`."""


class ChosenModel(Struct, frozen=True, kw_only=True):
    """A model of the configuration, whose engine is chosen and not open."""

    context: EngineContext
    engine: str
    """The engine's name."""
    config: Struct
    """The engine's table."""


class ChosenPlugins(Struct, frozen=True, kw_only=True):
    """What a configuration selects, with its decoded tables. Nothing is open."""

    models: Sequence[ChosenModel]
    tables: Mapping[tuple[str, str], Struct]
    """The table of each selected tool, store, API, resource, router, authenticator and policy, by its kind (`tool`, …) and
    name. One that the configuration leaves out has its defaults."""

    def table(self, kind: str, name: str, of: type[StructT]) -> StructT | None:
        """The table of a selected plugin, if it is of the type `of`."""
        found = self.tables.get((kind, name))
        return found if isinstance(found, of) else None


@hookspec
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    """Raise `ConfigurationError` for settings that do not fit together, of one table or of several.

    Called at the start, before anything is opened, and by `gateway config check`, which must find what the start would refuse
    because of the configuration alone. Must not open, read or connect to anything. What one value may be is said by the
    Struct that it is decoded into; what the world has to have, such as a server or a file, is found out when the plugin is
    opened.
    """


@hookspec
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    """Register engines: `make(config, context)` is an async context manager that yields an `Engine`.

    Called once, at start-up. A model in `gateway.toml` chooses an engine by `engine = "<name>"`; its table
    `[models.<model>.<name>]` is the config. Test yours with `gateway_testing.EngineContract`.
    """


@hookspec
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    """Register prompt renderers: `make(config, context)` returns a `PromptRenderer` for one model.

    Called once, at start-up. A model chooses one by `renderer = "<name>"`, or a model profile does. Test yours with
    `gateway_testing.RendererContract`.
    """


@hookspec
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    """Register output formats: `make(config, context)` returns an `OutputFormat` for one model.

    Called once, at start-up. A model chooses one by `parser = "<name>"`, or a model profile does. Test yours with
    `gateway_testing.OutputParserContract`.
    """


@hookspec
def gateway_register_tools(register: Register[OpenTool]) -> None:
    """Register tool servers: `make(config)` is an async context manager that yields a `ToolServer`.

    Called once, at start-up. A table `[tools.<name>]` in `gateway.toml` selects it, and is its config. If it has the
    method `use` (`gateway.protocols.ServicesUser`), that is called with the gateway's services, such as the `Embedder`
    of a configured model, once everything is open. Test yours with `gateway_testing.ToolServerContract`.
    """


@hookspec
def gateway_register_stores(register: Register[OpenStore]) -> None:
    """Register stores: `make(config)` is an async context manager that yields a `ResponseStore`.

    Called once, at start-up. `store = "<name>"` under `[server]` chooses one; `[stores.<name>]` is its config. Test
    yours with `gateway_testing.ResponseStoreContract`.
    """


@hookspec
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    """Register further APIs in front of the same models: `make(config)` is an async context manager that yields an
    `Api`.

    Called once, at start-up. `apis` under `[server]` names the APIs to serve; `[apis.<name>]` is the config. An API
    translates its requests into `GenerationRequest`s, and writes its answers from a parser's deltas with an
    `AnswerWriter`. If `apis` is not set, an API is served if it has a table, or the name of a selected tool, of a resource that
    such a tool needs, or of a resource that has a table. An API with the method `use` receives the gateway's services, as tools do.
    Test yours with `gateway_testing.ApiContract`.
    """


@hookspec
def gateway_register_resources(register: Register[OpenResource]) -> None:
    """Register resources that several tools and APIs share: `make(config)` is an async context manager that yields any
    object.

    Called once, at start-up. A resource is opened once per process if a selected tool or API `needs` it, before all of
    these, and closed after them. They receive the same object as the keyword argument of its name, which must therefore
    be an identifier. `[resources.<name>]` is its config. Its type is agreed between the distributions: the one that
    needs it depends on the one that registers it. State shared between processes, such as a folder, is the resource's
    own responsibility.
    """


@hookspec
def gateway_register_policies(register: Register[OpenPolicy]) -> None:
    """Register policies, which decide what may reach a model and what of its output may be shown: `make(config)` is an
    async context manager that yields a `Policy`.

    Called once, at start-up. A table `[policies.<name>]` in `gateway.toml` selects it, and is its config. Policies are
    applied in the order of their tables, each to what the one before has returned. If a policy has the method `use`
    (`gateway.protocols.ServicesUser`), it receives the gateway's services, as tools do. Test yours with
    `gateway_testing.PolicyContract`.
    """


@hookspec
def gateway_register_routers(register: Register[OpenRouter]) -> None:
    """Register routers, which choose the models of requests: `make(config)` is an async context manager that yields a
    `Router`.

    Called once, at start-up. A table `[routers.<name>]` in `gateway.toml` selects it, and is its config. Routers are
    asked in the order of their tables, before the routes of the configuration. If a router has the method `use`
    (`gateway.protocols.ServicesUser`), it receives the gateway's services, as tools do. Test yours with
    `gateway_testing.RouterContract`.
    """


@hookspec
def gateway_register_authenticators(register: Register[OpenAuthenticator]) -> None:
    """Register authenticators, which find the principals of requests: `make(config)` is an async context manager that
    yields a `RequestAuthenticator`.

    Called once, at start-up. A table `[authenticators.<name>]` in `gateway.toml` selects it, and is its config.
    Authenticators are asked in the order of their tables, and the API keys of the configuration last. With any of them, no
    request is anonymous. Test yours with `gateway_testing.RequestAuthenticatorContract`.
    """


@hookspec
def gateway_register_commands(register: RegisterCommand) -> None:
    """Register commands of the command line: `make(parser)` adds the arguments of `gateway <name>` to its
    `argparse.ArgumentParser` and returns the function that runs it with the parsed arguments.

    Called once, whenever the plugin is loaded. `make` is called only if the command is used, its help is shown, or
    `gateway completion` lists its options: import what it needs there. The function returns the exit code. It raises
    `ConfigurationError` for a mistake of the user, which is printed as one sentence, with the exit code 2. The name of
    a command of the gateway itself, or of another plugin, is refused. A command that has the name of its plugin is
    found without loading other plugins. `[plugins]` in a configuration does not matter to commands.
    `gateway.sdk.commands` has what commands share.
    """


@hookspec(firstresult=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    """Return the renderer and output format of `model`, or None if the model is unknown.

    Called once per model, at start-up, only if `gateway.toml` leaves something open. A plugin that knows one family
    well should use `@hookimpl(tryfirst=True)`: its result is used before those of others. If two plugins of equal rank
    give different results, the start fails with a sentence that names both; the order of loading does not matter.
    """


@hookspec
def gateway_response_finished(response: Response) -> None:
    """Observe a response that has reached a terminal status. For metrics and audit.

    Called once per response, after it is stored and before its terminal event is sent. Must not block and must not
    change the response; an exception is logged and ignored.
    """


@hookspec(firstresult=True)
def gateway_open_tracer() -> AbstractAsyncContextManager[Tracer] | None:
    """Return a context manager that yields a `Tracer`, or None if this plugin traces nothing now.

    Called once, at start-up; the first result that is not None is used. The context is left after the last request.
    """


@hookspec
def gateway_redact_content(text: str, kind: Literal["input", "output"]) -> str | None:
    """Return the text that is logged in place of `text`, a request's body or a model's output; None for `text` itself.

    Called only if `log_content` under `[server]` asks for texts: once per text, at the request's end, with some 17,000 characters at
    most. Several plugins are called one after another, each with what the one before returned. Must not block. If it
    raises, the text is not logged. A hook may omit `kind`.
    """


@hookspec
def gateway_chat_finished(
    completion: ChatCompletion, status: ResponseStatus, error: GatewayError | None
) -> None:
    """Observe a chat completion that has ended: `completed`, `incomplete`, `failed` or `cancelled`. For metrics and
    audit.

    Called once per completion that was started, streaming or not, after it is stored and before its end is sent. The
    completion has the choices that were finished; there may be none if it failed (with `error`) or its client
    disconnected. Must not block and must not change the completion; an exception is logged and ignored. A hook may omit
    arguments.
    """


@hookspec
def gateway_usage(used: AnswerUsage) -> None:
    """Observe what one answer of a model has used, and who asked for it. For billing and audit.

    Called once for each answer of every API that has begun, when it ends, however it ends: also for embeddings, rerankings,
    turns of a WebSocket, background responses and APIs of plugins. Must not block; an exception is logged and ignored.
    """
