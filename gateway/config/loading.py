"""Loading a `Config` from `gateway.toml`, the environment and the command line."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.base.errors import ConfigurationError
from gateway.base.packages import package_of
from gateway.config.hub_names import hub_name_of
from gateway.config.prompts import decode_prompt
from gateway.config.sources import (
    NAMED_SECTIONS,
    PREFIX,
    SECTIONS,
    Lines,
    Variable,
    environment,
    read_toml,
)
from gateway.config.structs import (
    Config,
    DocumentsConfig,
    MediaConfig,
    ModelConfig,
    PluginsConfig,
    RouteConfig,
    ServerConfig,
    Setting,
)
from gateway.config.tables import KeyPath, TableError, decode_table, nearest, suggestion

DEFAULT_FILE = Path("gateway.toml")
DEFAULT_MODEL = "tiny"
COMMAND_LINE = "command line"
BUILT_IN = "the built-in configuration"
LASTING_STORE: Final = "sqlite"
"""The store of a gateway whose configuration file names no store."""
LISTENING: Final = (
    "host", "port", "unix_socket", "tls_certificate", "tls_key", "tls_client_ca",
)  # fmt: skip
"""The settings under `[server]` that determine where and how the server listens."""

_MODEL_KEYS = tuple(field.name for field in msgspec.structs.fields(ModelConfig))
_MODEL_TABLES = ("sampling", "price", "chat_template_kwargs", "options")
_KNOWN = {
    "server": tuple(field.name for field in msgspec.structs.fields(ServerConfig)),
    "models": _MODEL_KEYS,
    "routes": tuple(field.name for field in msgspec.structs.fields(RouteConfig)),
    "plugins": tuple(field.name for field in msgspec.structs.fields(PluginsConfig)),
    "media": tuple(field.name for field in msgspec.structs.fields(MediaConfig)),
    "documents": tuple(field.name for field in msgspec.structs.fields(DocumentsConfig)),
}


def load_config(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    server: Mapping[str, Any] | None = None,
    models: Sequence[str] = (),
    engine: str | None = None,
    default_store: str | None = None,
) -> Config:
    """Read the configuration. Raises `ConfigurationError` for the first mistake, naming its source.

    The file is `path`, else the one that `GATEWAY_CONFIG` names, else `./gateway.toml` if it exists. Without a file,
    one model is served, the default engine's own. Settings from the environment override the file's, and settings from
    the command line (`server`, whose None values are ignored, `models` and `engine`) override both. Each of `models` is
    the name of a configured model, a file, a folder, a URL or a name of the hub; only these models are then served.

    `default_store` is used if no setting names a store and no store has a table. Its own default is `sqlite` if there
    is a file and that store's package is installed and not disabled, and otherwise `memory`.
    """
    return _layers(path, environ or {}, server or {}, models, engine).decode(default_store)


def load_listening(
    path: Path | None,
    environ: Mapping[str, str],
    *,
    server: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """Read where a server with this configuration listens: the settings `LISTENING` of `load_config(path, environ,
    server=server).server`, with defaults for the others. The rest of the configuration is ignored, so a mistake there
    does not matter. Raises `ConfigurationError`."""
    layers = _Layers(config_file(path, environ), sections=("server",))
    known = layers.tables.get("server", {})
    layers.tables["server"] = {key: value for key, value in known.items() if key in LISTENING}
    layers.tables["models"] = {}
    names = {f"{PREFIX}SERVER__{key}".upper() for key in LISTENING}
    layers.set_environment({k: v for k, v in environ.items() if k.upper() in names}, only=True)
    layers.set_command_line(server or {}, None)
    try:
        return decode_table(layers.tables["server"], ServerConfig, ("server",))
    except TableError as error:
        raise layers.mistake(error) from error


def list_settings(path: Path | None, environ: Mapping[str, str]) -> list[Setting]:
    """List the settings that differ from the defaults, with their sources, in the order of the file. Raises
    `ConfigurationError` like `load_config`."""
    return list(_layers(path, environ, {}, (), None).decode(None).settings)


def _layers(
    path: Path | None,
    environ: Mapping[str, str],
    server: Mapping[str, Any],
    models: Sequence[str],
    engine: str | None,
) -> _Layers:
    layers = _Layers(config_file(path, environ))
    layers.serve_only(models, engine)
    layers.set_environment(environ, only=bool(models))
    layers.set_command_line(server, engine)
    return layers


def config_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file: `path`, else the one that `GATEWAY_CONFIG` names, else `./gateway.toml` if it exists."""
    if path is not None:
        return path
    if named := environ.get("GATEWAY_CONFIG"):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


class _Layers:
    """The merged tables, and the source of each setting that is not from the file."""

    def __init__(self, file: Path | None, sections: Collection[str] | None = None) -> None:
        """Only `sections` of the file are read; None means all."""
        self.file = file
        self.tables: dict[str, Any] = {}
        self._lines = Lines("")
        self.origins: dict[KeyPath, str] = {}
        self.source = BUILT_IN if file is None else str(file)
        if file is not None:
            self.tables, text = read_toml(file)
            self._lines = Lines(text)
        if sections is not None:
            self.tables = {name: self.tables[name] for name in sections if name in self.tables}
        self.file_is_silent = "models" not in self.tables
        for section, table in self.tables.items():
            if section not in SECTIONS:
                problem = f"there is no such section; {suggestion(section, SECTIONS)}"
                raise self.mistake(TableError((section,), problem))
            if not isinstance(table, dict):
                raise self.mistake(TableError((section,), f"expected a table [{section}]"))
        for section in NAMED_SECTIONS:
            for name, table in self.tables.get(section, {}).items():
                if not isinstance(table, dict):
                    problem = f"expected a table [{section}.<name>]"
                    raise self.mistake(TableError((section, name), problem))

    def mistake(self, error: TableError) -> ConfigurationError:
        """Convert `error` to a `ConfigurationError` with the location of the setting."""
        for length in range(len(error.path), 0, -1):
            if origin := self.origins.get(error.path[:length]):
                return ConfigurationError(f"{origin}: {error}")
        if self.file is None:
            return ConfigurationError(str(error))
        line = self._lines.of(error.path)
        place = f"{self.file} line {line}" if line else str(self.file)
        return ConfigurationError(f"{place}: {error}")

    def settings(self) -> Iterator[Setting]:
        """All settings with their sources."""
        for path, value in _leaves(self.tables, ()):
            yield Setting(path=path, value=value, source=self._source(path))

    def _source(self, path: KeyPath) -> str:
        for length in range(len(path), 0, -1):
            if origin := self.origins.get(path[:length]):
                return origin
        line = self._lines.of(path)
        return f"{self.file} line {line}" if line else str(self.file)

    def serve_only(self, models: Sequence[str], engine: str | None) -> None:
        configured = self.tables.setdefault("models", {})
        if not configured and self.file_is_silent:
            configured[DEFAULT_MODEL] = {}
            self.origins["models", DEFAULT_MODEL] = BUILT_IN
        if not models:
            return
        chosen: dict[str, Any] = {}
        named = {model for model in models if model in configured and not Path(model).exists()}
        for model in models:
            if model in named:
                name, table = model, configured[model]
            elif engine is None and _is_bare_word(model):
                raise ConfigurationError(_unknown_model(model, configured))
            else:
                name, table = _new_model(model, named | chosen.keys())
                self.origins["models", name] = COMMAND_LINE
                self.source = COMMAND_LINE
            if name in chosen:
                raise ConfigurationError(
                    f"{COMMAND_LINE}: {model!r} would be a second model with the name {name!r}; give both names in a "
                    "configuration file: [models.<name>]."
                )
            chosen[name] = table
        self.tables["models"] = chosen
        if DEFAULT_MODEL not in chosen:
            self.origins.pop(("models", DEFAULT_MODEL), None)

    def set_environment(self, environ: Mapping[str, str], *, only: bool) -> None:
        known_models = set(self.tables["models"])
        variables = list(environment(environ, self.tables, _KNOWN))
        new = {each.path[1] for each in variables if each.path[0] == "models"} - known_models
        defined = {
            each.path[1]
            for each in variables
            if each.path[0] == "models" and each.path[2:] in {("path",), ("engine",)}
        }
        for each in variables:
            if each.path[0] == "models" and each.path[1] in new:
                if only:
                    continue  # a setting of a model that is not served
                if each.path[1] not in defined:
                    near = nearest(each.path[1], known_models)
                    hint = (
                        f'did you mean "{near}"?'
                        if near
                        else "set its __PATH or __ENGINE to define it."
                    )
                    raise ConfigurationError(
                        f"environment variable {each.name}: there is no model {each.path[1]!r}; {hint}"
                    )
            self._set(each)
        built_in = self.origins.get(("models", DEFAULT_MODEL)) == BUILT_IN
        if built_in and new and not only and not self.tables["models"][DEFAULT_MODEL]:
            del self.tables["models"][DEFAULT_MODEL]

    def _set(self, variable: Variable) -> None:
        origin = f"environment variable {variable.name}"
        level = self.tables
        for key in variable.path[:-1]:
            level = level.setdefault(key, {})
            if not isinstance(level, dict):
                raise ConfigurationError(f"{origin}: {key} is not a table.")
        level[variable.path[-1]] = variable.value
        self.origins[variable.path] = origin

    def set_command_line(self, server: Mapping[str, Any], engine: str | None) -> None:
        for key, value in server.items():
            if value is not None:
                self.tables.setdefault("server", {})[key] = value
                self.origins["server", key] = COMMAND_LINE
        if engine is not None:
            models = self.tables["models"]
            if len(models) != 1:
                raise ConfigurationError(
                    f"{COMMAND_LINE}: --engine says nothing of which model; name one of: {', '.join(models)}."
                )
            [name] = models
            models[name]["engine"] = engine
            self.origins["models", name, "engine"] = COMMAND_LINE

    def decode(self, default_store: str | None) -> Config:
        try:
            _refuse_nan(self.tables.get("server", {}), ("server",))
            _refuse_nan(self.tables.get("media", {}), ("media",))
            _refuse_nan(self.tables.get("documents", {}), ("documents",))
            models = {
                name: self._model(name, table) for name, table in self.tables["models"].items()
            }
            _check_names(models)
            server = dict(self.tables.get("server", {}))
            if isinstance(server.get("keys_file"), str):
                server["keys_file"] = self._relative_to_file(server["keys_file"])
            plugins = decode_table(self.tables.get("plugins", {}), PluginsConfig, ("plugins",))
            if "store" not in server:
                server["store"] = (
                    self._only_store() or default_store or self._default_store(plugins)
                )
            routes = {
                name: _route(name, table) for name, table in self.tables.get("routes", {}).items()
            }
            _check_routes(routes, models)
            folder = None if self.file is None else self.file.parent
            prompts = {
                name: decode_prompt(name, table, folder)
                for name, table in self.tables.get("prompts", {}).items()
            }
            return Config(
                server=decode_table(server, ServerConfig, ("server",)),
                models=models,
                routes=routes,
                prompts=prompts,
                authenticators=copy.deepcopy(self.tables.get("authenticators", {})),
                routers=copy.deepcopy(self.tables.get("routers", {})),
                policies=copy.deepcopy(self.tables.get("policies", {})),
                tools=copy.deepcopy(self.tables.get("tools", {})),
                stores=copy.deepcopy(self.tables.get("stores", {})),
                apis=copy.deepcopy(self.tables.get("apis", {})),
                resources=copy.deepcopy(self.tables.get("resources", {})),
                plugins=plugins,
                media=decode_table(self.tables.get("media", {}), MediaConfig, ("media",)),
                documents=decode_table(
                    self.tables.get("documents", {}), DocumentsConfig, ("documents",)
                ),
                source=self.source,
                settings=list(self.settings()),
            )
        except TableError as error:
            raise self.mistake(error) from error

    def _only_store(self) -> str | None:
        """Return the store that has a table, which selects it as a table selects a tool or an API. Raises `TableError`
        if several have one."""
        names = list(self.tables.get("stores", {}))
        if len(names) > 1:
            problem = (
                f"{' and '.join(names)} have a table; name the one to use with store under [server]"
            )
            raise TableError(("stores",), problem)
        return names[0] if names else None

    def _default_store(self, plugins: PluginsConfig) -> str:
        """Return the store to use if none is named: a lasting one if there is a configuration file, the plugin is
        allowed and its package is installed."""
        if self.file is None or LASTING_STORE in plugins.disable:
            return ServerConfig().store
        if plugins.allow is not None and LASTING_STORE not in plugins.allow:
            return ServerConfig().store
        return LASTING_STORE if package_of("store", LASTING_STORE) is None else ServerConfig().store

    def _model(self, name: str, table: Mapping[str, Any]) -> ModelConfig:
        path = ("models", name)
        if not name or not name.isprintable():
            raise TableError(path, "a model's name is printable text")
        _refuse_nan(table, path)
        fields: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for key, value in table.items():
            if isinstance(value, dict) and key not in _MODEL_TABLES:
                options[key] = value
            else:
                fields[key] = value
        explicit = fields.get("options", {})
        if isinstance(explicit, dict):
            for key in explicit:
                if key in options:
                    problem = f"[models.{name}.{key}] says the same; keep one of them"
                    raise TableError((*path, "options", key), problem)
            fields["options"] = explicit | options
        for key in ("path", "chat_template"):
            if isinstance(fields.get(key), str):
                fields[key] = self._relative_to_file(fields[key])
        model = decode_table(fields, ModelConfig, path)
        if model.parser is not None:
            for half in ("reasoning", "tools"):
                if getattr(model, half) is not None:
                    problem = "parser names the whole format already; keep one of them"
                    raise TableError((*path, half), problem)
        return model

    def _relative_to_file(self, written: str) -> str:
        """Resolve a path that is relative to the configuration file; other text is unchanged."""
        if "\n" in written or "{" in written or "\0" in written:
            return written
        try:
            path = Path(written).expanduser()
        except RuntimeError:  # unknown user
            return written
        if self.file is not None and not path.is_absolute() and (self.file.parent / path).exists():
            return str(self.file.parent / path)
        return str(path) if written.startswith("~") else written


def model_name(path: str) -> str:
    """The name of a model that the command line gives as a file, a folder, a name of the hub or the URL of a server."""
    if path.startswith(("http://", "https://")):
        path = path.rstrip("/").removesuffix("/v1")
    hub_name = hub_name_of(path)
    if hub_name is not None:
        return hub_name.short
    name = Path(path).name or Path(path).resolve().name
    return name.removesuffix(".gguf") or name


def _new_model(path: str, taken: Collection[str]) -> tuple[str, dict[str, Any]]:
    """The name and the table of a model that is not configured. A model of the hub has its whole name as an alias, or
    as its name if the short one is taken. For a server with OpenAI's API, the fragment of the URL is the model's name,
    both there and here."""
    if path.startswith(("http://", "https://")):
        url, _, fragment = path.partition("#")
        if fragment:
            return fragment, {"path": url, "engine": "openai"}
        return model_name(url), {"path": url}
    name, hub_name = model_name(path), hub_name_of(path)
    if hub_name is None or str(hub_name) == name:
        return name, {"path": path}
    if name in taken:
        return str(hub_name), {"path": path}
    return name, {"path": path, "aliases": [str(hub_name)]}


def _is_bare_word(model: str) -> bool:
    """Whether `model` can only be the name of a configured model."""
    return (
        "/" not in model and ":" not in model and not model.startswith((".", "~")) and not model.endswith(".gguf")
        and not Path(model).exists()
    )  # fmt: skip


def _unknown_model(model: str, configured: Mapping[str, Any]) -> str:
    near = nearest(model, configured)
    hint = f'; did you mean "{near}"?' if near is not None else "."
    known = ", ".join(configured) or "none"
    return (
        f"{COMMAND_LINE}: there is no model, file or folder {model!r}{hint} Configured models: {known}. Write a model of the hub "
        "with its owner, as in owner/repository."
    )


def _check_names(models: Mapping[str, ModelConfig]) -> None:
    if not models:
        raise TableError(("models",), "no model is configured; add a table [models.<name>]")
    owners: dict[str, str] = {}
    for name in models:
        owners[name] = name
    for name, model in models.items():
        for number, alias in enumerate(model.aliases):
            if alias in owners:
                problem = f"{alias!r} is already a name of the model {owners[alias]!r}"
                raise TableError(("models", name, "aliases", str(number)), problem)
            owners[alias] = name


def _route(name: str, table: Mapping[str, Any]) -> RouteConfig:
    _refuse_nan(table, ("routes", name))
    return decode_table(table, RouteConfig, ("routes", name))


def _check_routes(routes: Mapping[str, RouteConfig], models: Mapping[str, ModelConfig]) -> None:
    owners = {each: name for name, model in models.items() for each in (name, *model.aliases)}
    for name, route in routes.items():
        if not name or not name.isprintable():
            raise TableError(("routes", name), "a route's name is printable text")
        if name in owners:
            problem = f"{name!r} is already a name of the model {owners[name]!r}"
            raise TableError(("routes", name), problem)
        known: set[str] = set()
        for number, target in enumerate(route.models):
            where = ("routes", name, "models", str(number))
            if target not in owners:
                # LoRA adapters have names of their own, known once their model is open.
                continue
            if owners[target] in known:
                raise TableError(where, f"{target!r} is another name of a model before it")
            known.add(owners[target])


def _leaves(table: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _refuse_nan(table: Any, path: KeyPath) -> None:
    for key, value in _items(table):
        if isinstance(value, float) and not math.isfinite(value):
            raise TableError((*path, key), f"expected a finite number, not {value}")
        _refuse_nan(value, (*path, key))


def _items(table: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(table, dict):
        return table.items()
    if isinstance(table, list):
        return ((str(number), value) for number, value in enumerate(table))
    return ()
