"""Every hook that a plugin may implement: the plugin author's manual.

A plugin is a distribution with an entry point in the group `gateway`:

    [project.entry-points.gateway]
    mytool = "gateway_mytool"

The entry point names an object (usually a module) with functions marked `@gateway.hookimpl`. All hooks are synchronous
and are called at start-up or once per response, never per token. A misspelt hook or argument is an error at start-up.
Import heavy libraries inside the function that opens the plugin, not at the top of the module: listing plugins imports
every module.

Register hooks register an implementation under a name; `gateway.toml` selects it by that name:

    class Config(msgspec.Struct, forbid_unknown_fields=True):
        greeting: str = "hello"

    @asynccontextmanager
    async def open_tool(config: Config) -> AsyncIterator[ToolServer]:
        yield GreetingServer(config.greeting)

    @hookimpl
    def gateway_register_tools(register: Register[OpenTool]) -> None:
        register("greeting", open_tool, config=Config)

`config` is a msgspec Struct; the plugin's tables in `gateway.toml` are decoded into it. An unknown key is an error that
names the nearest valid key. Engines, tools, stores, APIs and resources are asynchronous context managers. Those that
the configuration selects are entered at start-up and left at shutdown.

A resource is an object that several tools and APIs share. A tool or API lists the resources that it uses in `needs`.
When it is opened, it receives each as the keyword argument of the resource's name:

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

from gateway.base.errors import ConfigurationError, GatewayError
from gateway.plugins.protocols import (
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
    """The engines, renderers and output formats of all plugins, for implementations that wrap others.

    `options` is the configuration of the requested implementation: its table in `gateway.toml`. The methods raise
    `ConfigurationError` for a name that no plugin offers, for wrong options, if the implementation cannot be created,
    and if it would contain itself.
    """

    def names(self, kind: Literal["engine", "renderer", "parser"]) -> Sequence[str]:
        """All names of a kind in alphabetical order, including aliases."""
        ...

    def engine(
        self, name: str, context: EngineContext, options: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[Engine]:
        """Return a context manager that opens the engine with that name in this process, for the model of `context`.

        Errors are raised when it is entered. Leaving it closes the engine.
        """
        ...

    def renderer(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> PromptRenderer:
        """Create the renderer with that name for the model of `context`."""
        ...

    def parser(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> OutputFormat:
        """Create the output format with that name for the model of `context`."""
        ...


class _NoRegistry:
    """The registry of a context that was not created by the gateway, such as one in a test. It is empty."""

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
    """The model, from `gateway.toml` or the command line: a file, a folder, a URL, or the name of a model on the hub.
    None: the engine's default. `gateway.sdk.hub` finds and downloads models of the hub."""
    max_model_len: int | None = None
    """Configured limit on the total number of tokens of prompt and output."""
    compile_seconds: float = 10.0
    """Time limit for compiling the constraints of one request, in seconds (`[server.schemas]`)."""
    registry: Registry = _NO_REGISTRY
    """Creates other implementations, for an engine that wraps them."""


class ModelContext(Struct, frozen=True, kw_only=True):
    """The model for which a renderer or an output format is created."""

    info: ModelInfo
    tokenizer: Tokenizer | None
    trust_request_chat_template: bool = False
    registry: Registry = _NO_REGISTRY
    """Creates other implementations, for a renderer or output format that wraps them."""


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

        - `config`: the Struct into which the plugin's tables in `gateway.toml` are decoded.
        - `summary`: one line for `gateway plugins`.
        - `aliases`: further names by which a configuration may select the implementation.
        - `needs`: names of the resources that a tool or API receives as keyword arguments when it is opened.
        - `needs_tool`: for APIs: a configuration that has the API must have the tool of the same name.
        - `process`: for engines: where they run, unless the configuration says. `shared`: with several workers, in a
          process of its own that all workers share; otherwise in the server process. `own`: like `shared`, but in a
          process of its own also if the model is loaded on demand, because loading it blocks the server process.
          `server`: always in the server process, for engines that only call another server, and for engines that take
          messages.

        If another installed distribution registers the same name, the start fails with an error that names both.
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
    """Whether an API requires the tool of the same name."""
    process: Literal["server", "shared", "own"] = "shared"
    """Where an engine runs; see `Register`."""


class ChosenModel(Struct, frozen=True, kw_only=True):
    """A model of the configuration, with the engine that was chosen for it. The engine is not open yet."""

    context: EngineContext
    engine: str
    """The engine's name."""
    config: Struct
    """The engine's decoded table."""


class ChosenPlugins(Struct, frozen=True, kw_only=True):
    """The models and plugins that a configuration selects, with their decoded tables. None of them is open yet."""

    models: Sequence[ChosenModel]
    tables: Mapping[tuple[str, str], Struct]
    """Maps the kind (`tool`, …) and name of each selected tool, store, API, resource, router, authenticator and
    policy to its table. A table that the configuration omits has default values."""

    def table(self, kind: str, name: str, of: type[StructT]) -> StructT | None:
        """The table of a selected plugin; None if the plugin is not selected or its table is not of the type `of`."""
        found = self.tables.get((kind, name))
        return found if isinstance(found, of) else None


@hookspec
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    """Raise `ConfigurationError` for settings that contradict each other, within one table or between several.

    Called at start-up before anything is opened, and by `gateway config check`. Must not open, read or connect to
    anything. The values of a single setting are checked by the Struct into which it is decoded. External
    requirements, such as a server or a file, are checked when the plugin is opened.
    """


@hookspec
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    """Register engines: `make(config, context)` is an async context manager that yields an `Engine`.

    Called once, at start-up. A model in `gateway.toml` selects an engine with `engine = "<name>"`; the table
    `[models.<model>.<name>]` is the config. Test yours with `gateway_testing.EngineContract`.
    """


@hookspec
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    """Register prompt renderers: `make(config, context)` returns a `PromptRenderer` for one model.

    Called once, at start-up. A model selects one with `renderer = "<name>"`; otherwise its model profile does. Test
    yours with `gateway_testing.RendererContract`.
    """


@hookspec
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    """Register output formats: `make(config, context)` returns an `OutputFormat` for one model.

    Called once, at start-up. A model selects one with `parser = "<name>"`; otherwise its model profile does. Test yours
    with `gateway_testing.OutputParserContract`.
    """


@hookspec
def gateway_register_tools(register: Register[OpenTool]) -> None:
    """Register tool servers: `make(config)` is an async context manager that yields a `ToolServer`.

    Called once, at start-up. A table `[tools.<name>]` in `gateway.toml` selects the tool server and is its config. If
    the tool server has the method `use` (`gateway.plugins.protocols.ServicesUser`), the method is called with the gateway's
    services, such as the `Embedder` of a configured model, once everything is open. Test yours with
    `gateway_testing.ToolServerContract`.
    """


@hookspec
def gateway_register_stores(register: Register[OpenStore]) -> None:
    """Register stores: `make(config)` is an async context manager that yields a `ResponseStore`.

    Called once, at start-up. `store = "<name>"` under `[server]` selects a store; `[stores.<name>]` is its config. Test
    yours with `gateway_testing.ResponseStoreContract`.
    """


@hookspec
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    """Register further APIs for the same models: `make(config)` is an async context manager that yields an `Api`.

    Called once, at start-up. `apis` under `[server]` names the APIs to serve; `[apis.<name>]` is the config. If
    `apis` is not set, an API is served if it has a table, or if its name is that of a selected tool, of a resource
    that such a tool needs, or of a resource that has a table. An API translates its requests into
    `GenerationRequest`s, and writes its answers from a parser's deltas with an `AnswerWriter`. An API with the method
    `use` receives the gateway's services, like a tool server. Test yours with `gateway_testing.ApiContract`.
    """


@hookspec
def gateway_register_resources(register: Register[OpenResource]) -> None:
    """Register resources that several tools and APIs share: `make(config)` is an async context manager that yields any
    object.

    Called once, at start-up. If a selected tool or API `needs` a resource, it is opened once per process, before all
    tools and APIs that need it, and closed after them. All of these receive the same object as the keyword argument
    of the resource's name, which must therefore be an identifier. `[resources.<name>]` is its config. Its type is
    agreed between the distributions: the one that needs the resource depends on the one that registers it. A resource
    is itself responsible for state that it shares between processes, such as a folder.
    """


@hookspec
def gateway_register_policies(register: Register[OpenPolicy]) -> None:
    """Register policies, which decide which input may reach a model and which output may be shown: `make(config)` is an
    async context manager that yields a `Policy`.

    Called once, at start-up. A table `[policies.<name>]` in `gateway.toml` selects the policy and is its config.
    Policies are applied in the order of their tables; each receives the result of the previous one. A policy with the
    method `use` (`gateway.plugins.protocols.ServicesUser`) receives the gateway's services, like a tool server. Test yours
    with `gateway_testing.PolicyContract`.
    """


@hookspec
def gateway_register_routers(register: Register[OpenRouter]) -> None:
    """Register routers, which choose the models of requests: `make(config)` is an async context manager that yields a
    `Router`.

    Called once, at start-up. A table `[routers.<name>]` in `gateway.toml` selects the router and is its config. Routers
    are asked in the order of their tables, before the routes of the configuration. A router with the method `use`
    (`gateway.plugins.protocols.ServicesUser`) receives the gateway's services, like a tool server. Test yours with
    `gateway_testing.RouterContract`.
    """


@hookspec
def gateway_register_authenticators(register: Register[OpenAuthenticator]) -> None:
    """Register authenticators, which find the principals of requests: `make(config)` is an async context manager that
    yields a `RequestAuthenticator`.

    Called once, at start-up. A table `[authenticators.<name>]` in `gateway.toml` selects the authenticator and is its
    config. Authenticators are asked in the order of their tables, then the API keys of the configuration. If any
    authenticator is configured, no request is anonymous. Test yours with
    `gateway_testing.RequestAuthenticatorContract`.
    """


@hookspec
def gateway_register_commands(register: RegisterCommand) -> None:
    """Register commands of the command line: `make(parser)` adds the arguments of `gateway <name>` to its
    `argparse.ArgumentParser` and returns the function that runs it with the parsed arguments.

    Called once, whenever the plugin is loaded. `make` is called only if the command is used, its help is shown, or
    `gateway completion` lists its options; import the command's libraries there. The function returns the exit code.
    For a mistake of the user it raises `ConfigurationError`, which is printed as one sentence, with the exit code 2.
    A command cannot have the name of a command of the gateway or of another plugin. A command with the same name as
    its plugin is found without loading other plugins. The table `[plugins]` of a configuration does not affect
    commands. `gateway.sdk.commands` has helpers for commands.
    """


@hookspec(firstresult=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    """Return the renderer and output format of `model`, or None if the model is unknown.

    Called once per model, at start-up, only if `gateway.toml` does not set both. A plugin for one model family should
    use `@hookimpl(tryfirst=True)`, so that its result takes precedence. If two plugins of equal rank return different
    results, the start fails with an error that names both; the order of loading does not matter.
    """


@hookspec
def gateway_response_finished(response: Response) -> None:
    """Observe a response that has reached a terminal status. For metrics and audit.

    Called once per response, after the response is stored and before its terminal event is sent. Must not block and
    must not change the response; an exception is logged and ignored.
    """


@hookspec(firstresult=True)
def gateway_open_tracer() -> AbstractAsyncContextManager[Tracer] | None:
    """Return a context manager that yields a `Tracer`, or None if this plugin does not trace.

    Called once, at start-up; the first result that is not None is used. The context manager is left after the last
    request.
    """


@hookspec
def gateway_redact_content(text: str, kind: Literal["input", "output"]) -> str | None:
    """Return the text to log in place of `text`, which is a request's body or a model's output; None to log `text`
    itself.

    Called only if `log_content` under `[server]` is enabled: once per text, at the end of the request, with at most
    about 17,000 characters. If several plugins implement the hook, each receives the result of the previous one. Must
    not block. If it raises, the text is not logged. A hook may omit the argument `kind`.
    """


@hookspec
def gateway_chat_finished(
    completion: ChatCompletion, status: ResponseStatus, error: GatewayError | None
) -> None:
    """Observe a chat completion that has ended: `completed`, `incomplete`, `failed` or `cancelled`. For metrics and
    audit.

    Called once per completion that was started, streaming or not, after it is stored and before its end is sent.
    `completion` contains the choices that were finished; there may be none if the completion failed (with `error`) or
    the client disconnected. Must not block and must not change the completion; an exception is logged and ignored. A
    hook may omit arguments.
    """


@hookspec
def gateway_usage(used: AnswerUsage) -> None:
    """Observe the usage of one answer, and the principal that requested it. For billing and audit.

    Called once for each answer that has begun, when it ends, whether it succeeds or not. This includes all APIs:
    embeddings, rerankings, responses over a WebSocket, background responses and APIs of plugins. Must not block; an
    exception is logged and ignored.
    """
