"""A JSON schema of `gateway.toml`, with the tables of the installed plugins, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, inspect

from gateway.config import Config, ModelConfig
from gateway.config.descriptions import descriptions
from gateway.plugins.checks import Kind
from gateway.plugins.hookspecs import Offer
from gateway.plugins.loading import KINDS, PLURALS, PluginSet

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODEL_KINDS: tuple[Kind, ...] = ("engine", "renderer", "parser")

_Schema: TypeAlias = dict[str, Any]


def config_schema(plugins: PluginSet) -> _Schema:
    """The schema. It refuses unknown keys, as the gateway does."""
    tables: dict[str, type[Struct]] = {}
    tables_by_name: dict[str, type[Struct]] = {}
    kinds: dict[str, Kind] = {}
    sections = {PLURALS.get(kind, f"{kind}s"): kind for kind in KINDS}
    for field in _fields(Config):
        kind = field.type
        if isinstance(kind, inspect.StructType):
            tables[field.name] = kind.cls
        elif isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StructType):
            tables_by_name[field.name] = kind.value_type.cls
        elif isinstance(kind, inspect.DictType):
            kinds[field.name] = sections[field.name]
    offered = (*kinds.values(), *_MODEL_KINDS)
    configs: list[type[Struct]] = [
        offer.config for kind_ in offered for offer in plugins.offers(kind_)
    ]
    schemas = _Schemas([*tables.values(), *tables_by_name.values(), *configs])
    _add_plugin_tables(schemas, plugins)
    properties: _Schema = {name: schemas.reference(each) for name, each in tables.items()}
    for name, struct in tables_by_name.items():
        properties[name] = {
            "type": "object",
            "additionalProperties": schemas.reference(struct),
        }
    for section, kind_ in kinds.items():
        properties[section] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: schemas.reference(offer.config) | {"description": offer.summary}
                for offer in plugins.offers(kind_)
                for name in (offer.name, *plugins.aliases(offer))
            },
        }
    schema = {
        "$schema": DIALECT,
        "title": "Litegate's gateway.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": schemas.components,
    }
    plain = msgspec.json.decode(msgspec.json.encode(schema, order="deterministic"))
    return {key: plain[key] for key in schema}


class _Schemas:
    """The schemas of tables, and of all Structs in them."""

    def __init__(self, roots: Iterable[type[Struct]]) -> None:
        """`roots` are tables of the configuration, in which unknown keys are refused."""
        roots = list(dict.fromkeys(roots))
        structs = list(dict.fromkeys(each for root in roots for each in _structs(root)))
        references, self.components = msgspec.json.schema_components(
            structs, schema_hook=_other_type, ref_template="#/$defs/{name}"
        )
        self._references = dict(zip(structs, references, strict=True))
        for struct in structs:
            properties = self.of(struct).get("properties", {})
            for name, text in descriptions(struct).items():
                if name in properties:
                    properties[name]["description"] = text
        for root in roots:
            self.of(root)["additionalProperties"] = False

    def of(self, struct: type[Struct]) -> _Schema:
        """The schema of a Struct. The caller may change it."""
        name = self._references[struct]["$ref"].rpartition("/")[2]
        schema: _Schema = self.components[name]
        return schema

    def reference(self, struct: type[Struct]) -> _Schema:
        """A new schema that refers to the schema of a Struct."""
        return dict(self._references[struct])


def _add_plugin_tables(schemas: _Schemas, plugins: PluginSet) -> None:
    """Add a table for each engine, renderer and output format to the schema of a model. Plugins with the same name
    share a table."""
    by_name: dict[str, list[Offer[Any]]] = {}
    for kind in _MODEL_KINDS:
        for offer in plugins.offers(kind):
            if msgspec.structs.fields(offer.config):
                for name in (offer.name, *plugins.aliases(offer)):
                    by_name.setdefault(name, []).append(offer)
    own = schemas.of(ModelConfig)["properties"]
    tables = {
        name: schemas.reference(offers[0].config) | {"description": offers[0].summary}
        if len({offer.config for offer in offers}) == 1
        else _merged([schemas.of(offer.config) for offer in offers], offers[0].summary)
        for name, offers in by_name.items()
    }
    # A plugin with the name of one of the model's own keys has its table in `options` only.
    own["options"] |= {"properties": tables, "additionalProperties": False}
    place = schemas.reference(ModelConfig)["$ref"]
    own |= {
        name: {"$ref": f"{place}/properties/options/properties/{name}"}
        for name in tables.keys() - own.keys()
    }


def _merged(schemas: list[_Schema], description: str) -> _Schema:
    properties: _Schema = {}
    required: set[str] = set()
    for schema in schemas:
        properties |= schema.get("properties", {})
        required.update(schema.get("required", ()))
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": sorted(required),
        "additionalProperties": False,
    }


def _fields(struct: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _structs(root: type[Struct]) -> Iterator[type[Struct]]:
    """`root` and all Structs in its fields."""
    pending: list[inspect.Type] = [inspect.type_info(root)]
    seen: set[type[Struct]] = set()
    while pending:
        kind = pending.pop()
        if not isinstance(kind, inspect.StructType):
            pending += _inner(kind)
        elif kind.cls not in seen:
            seen.add(kind.cls)
            yield kind.cls
            pending += (field.type for field in kind.fields)


def _inner(kind: inspect.Type) -> Iterable[inspect.Type]:
    for name in ("type", "key_type", "value_type", "item_type"):
        found = getattr(kind, name, None)
        if isinstance(found, inspect.Type):
            yield found
    for name in ("types", "item_types"):
        yield from getattr(kind, name, ())


def _other_type(kind: type) -> _Schema:
    """The schema of a type that JSON does not have: a string for paths, and anything for other types."""
    return {"type": "string"} if issubclass(kind, PurePath) else {}
