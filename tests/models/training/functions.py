"""Random functions in the common JSON form, requests that need them, and their results."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import phrases
import words
from material import Casing, Material


@dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    type: str = "string"
    enum: tuple[str, ...] = ()
    description: str = ""
    required: bool = True


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks, and the arguments that follow from it, both in the user's casing."""

    text: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Function:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    topic: str
    """Two functions offered together never share a topic, so that only one of them fits."""
    ask: Callable[[Casing], Request]
    result: Callable[[str], Any]
    """A result's JSON value, given the request's first argument."""
    about: Callable[[str], str] | None = None
    """A request's text about a given value, for functions with one free string."""


class Functions:
    """Makes functions from a source of material."""

    def __init__(self, material: Material) -> None:
        self.m = material

    def any(self) -> Function:
        make = self.m.choice(
            [self.lookup] * 7
            + [self.weather, self.weather, self.clock]
            + [self.action] * 3
            + [self.form] * 3
            + [self.sum, self.search, self.message, self.bare]
        )
        return make()

    def several(self, first: Function) -> list[Function]:
        """``first`` and up to three others, shuffled."""
        offered = [first]
        for _ in range(self.m.choice([0, 0, 0, 1, 1, 2, 3])):
            other = self.any()
            if all(other.topic != f.topic and other.name != f.name for f in offered):
                offered.append(other)
        self.m.random.shuffle(offered)
        return offered

    # -- kinds of functions ----------------------------------------------------------------------

    def lookup(self, noun: str | None = None) -> Function:
        """A function of one value: the `noun` of some `kind`."""
        m = self.m
        noun = noun or (m.known(words.NOUNS, words.HELD_OUT_NOUNS) if m.chance(0.85) else m.word())
        kind = m.known(words.KINDS, words.HELD_OUT_KINDS) if m.chance(0.85) else m.word()
        kind = m.choice([kind] * 5 + [kind + "_id", kind + "_name", kind + "Name"])
        described = m.choice(
            [
                "Get the {n} of a {k}",
                "Look up the {n} for a {k}.",
                "Returns the {n}",
                "Get the current {n} in a given {k}.",
                "Retrieves the {n} for the given {k}.",
                "Get the {n} in a {k}, " + m.phrase(4),
                "Find the {n} of one {k}.",
                "{n} lookup",
                "Fetch {n}",
                "Look up the latest {n} of a {k}",
                "Search for the {n} by {k}",
            ]
        ).format(n=noun, k=kind.replace("_", " "))
        integer = kind.endswith("_id") and m.chance(0.5)

        def about(value: str) -> str:
            return self.question(noun, value)

        main = Parameter(
            name=kind,
            type="integer" if integer else "string",
            description=m.choice(
                [f"The {kind}", f"{kind} to look up", f"Name of the {kind}", m.phrase(5)]
            ),
        )
        return self._of_one_value(
            name=self._name(
                ["get", "get", "get", "fetch", "find", "lookup", "query", "show", "check"], noun
            ),
            description=described,
            main=main,
            topic=noun,
            about=about,
        )

    def weather(self) -> Function:
        m = self.m
        main = Parameter(
            name=m.choice(["city", "location", "location", "place", "city_name", "q"]),
            description=m.choice(phrases.LOCATION_DESCRIPTION),
        )
        return self._of_one_value(
            name=m.choice(
                ["get_weather"] * 4
                + [
                    "get_current_weather",
                    "weather",
                    "getWeather",
                    "current_weather",
                    "fetch_weather",
                ]
                + ["get_weather_" + m.choice(["data", "info", "report", m.word()])]
            ),
            description=m.choice(phrases.WEATHER_DESCRIPTION),
            main=main,
            topic="weather",
            about=lambda value: self.question("weather", value),
        )

    def clock(self) -> Function:
        m = self.m
        zone = m.chance(0.4)
        kind = m.choice(["timezone", "time_zone", "tz"] if zone else ["city", "location", "place"])
        return self._of_one_value(
            name=m.choice(["get_time", "get_current_time", "current_time", "time", "getTime"]),
            description=m.choice(phrases.CLOCK_DESCRIPTION).format(k=kind),
            main=Parameter(
                name=kind, description=m.choice([f"The {kind}", "IANA timezone, e.g. Europe/Paris"])
            ),
            topic="time",
            about=lambda value: self.question("time", value),
            values=self._zone if zone else m.city,
        )

    def _zone(self) -> str:
        m = self.m
        if m.chance(0.3):
            return m.choice(["UTC", "CET", "EST", "PST", "GMT"])
        if m.chance(0.3):
            return m.city()
        region = m.choice(["Europe", "America", "Asia", "Africa"])
        return f"{region}/{m.city().replace(' ', '_')}"

    def _of_one_value(
        self,
        *,
        name: str,
        description: str,
        main: Parameter,
        topic: str,
        about: Callable[[str], str],
        values: Callable[[], str] | None = None,
    ) -> Function:
        m = self.m
        options: tuple[Parameter, ...] = ()
        choice: Parameter | None = None
        if m.chance(0.45):
            key, enum = m.choice(words.UNITS)
            choice = Parameter(
                name=key,
                enum=tuple(enum),
                required=m.chance(0.4),
                description=m.choice(
                    ["", f"The {key} to use", "Units the temperature will be returned in."]
                ),
            )
            options = (choice,)
        if m.chance(0.2):
            options += (self._unused(),)

        def ask(casing: Casing) -> Request:
            if main.type == "integer":
                number = m.number(5)
                value, argument = str(number), number
            else:
                value = values() if values else m.place() if topic == "weather" else m.value()
                argument = casing(value)
            text = about(value)
            arguments: dict[str, Any] = {main.name: argument}
            if choice is not None:
                if m.chance(0.35):
                    wanted = m.choice(choice.enum)
                    text = _inserted(text, m.choice([" in ", ", "]) + wanted)
                    arguments[choice.name] = wanted
                elif choice.required:
                    arguments[choice.name] = choice.enum[0]
            return Request(text=casing(text), arguments=arguments)

        def result(value: str) -> Any:
            return self.fields(topic, main.name, value)

        free = about if main.type == "string" and choice is None else None
        parameters = (main, *options) if m.chance(0.92) else (*options, main)
        if parameters[0] is not main:
            # Arguments come in the order of the properties.
            inner = ask

            def ask(casing: Casing) -> Request:
                request = inner(casing)
                order = [p.name for p in parameters if p.name in request.arguments]
                return Request(
                    text=request.text, arguments={k: request.arguments[k] for k in order}
                )

        return Function(
            name=name,
            description=description,
            parameters=parameters,
            topic=topic,
            ask=ask,
            result=result,
            about=free,
        )

    def _unused(self) -> Parameter:
        """An optional parameter that no request mentions."""
        m = self.m
        return Parameter(
            name=m.choice(["limit", "lang", "verbose", "days", "page", "options", m.word()]),
            type=m.choice(["integer", "string", "boolean", "number", "array", "object"]),
            required=False,
            description=m.choice(["", "Optional.", m.phrase(4)]),
        )

    def action(self) -> Function:
        """A function that does something to one thing."""
        m = self.m
        verb = m.known(words.VERBS, words.HELD_OUT_VERBS)
        thing = m.known(words.THINGS, words.HELD_OUT_THINGS)
        key = m.choice([thing, "name", "id", "target", thing + "_name", thing + "_id", "path"])
        integer = m.chance(0.25)

        def about(value: str) -> str:
            return m.choice(phrases.ASK_ACTION).format(
                V=verb.capitalize(), b=verb, t=thing, v=value
            )

        def ask(casing: Casing) -> Request:
            if integer:
                number = m.number(4)
                return Request(text=casing(about(str(number))), arguments={key: number})
            value = m.value()
            return Request(text=casing(about(value)), arguments={key: casing(value)})

        return Function(
            name=self._verb_name(verb, thing),
            description=m.choice(
                [f"{verb.capitalize()} a {thing}", f"{verb.capitalize()} the given {thing}."]
            ),
            parameters=(Parameter(name=key, type="integer" if integer else "string"),),
            topic=verb + thing,
            ask=ask,
            result=lambda value: self.outcome(thing),
            about=None if integer else about,
        )

    def form(self) -> Function:
        """A function of two or three named values."""
        m = self.m
        verb = m.known(words.VERBS, words.HELD_OUT_VERBS)
        thing = m.known(words.THINGS, words.HELD_OUT_THINGS)
        keys: list[str] = []
        while len(keys) < 2:
            drawn = [m.choice(words.FIELDS) if m.chance(0.7) else m.word() for _ in range(3)]
            keys = list(dict.fromkeys(drawn))[: m.choice([2, 2, 3])]
        parameters = tuple(
            Parameter(
                name=key,
                type=m.choice(["string", "string", "integer"]),
                required=position == 0 or m.chance(0.8),
            )
            for position, key in enumerate(keys)
        )

        def ask(casing: Casing) -> Request:
            parts, arguments = [], {}
            for p in parameters:
                if not p.required and m.chance(0.6):
                    continue
                value = m.value() if p.type == "string" else str(m.number(3))
                parts.append(
                    m.choice(["{} {}", "{} {}", "the {} {}"]).format(
                        p.name.replace("_", " "), value
                    )
                )
                arguments[p.name] = casing(value) if p.type == "string" else int(value)
            listed = m.choice([", ", " and "]).join(parts[:-1])
            listed = f"{listed} and {parts[-1]}" if listed else parts[-1]
            text = m.choice(
                [
                    "{V} a {t} with {p}",
                    "Please {v} a {t} with {p}.",
                    "{V} the {t} with {p}.",
                    "{V} {t}: {p}",
                ]
            ).format(V=verb.capitalize(), v=verb, t=thing, p=listed)
            return Request(text=casing(text), arguments=arguments)

        return Function(
            name=self._verb_name(verb, thing),
            description=m.choice(
                [f"{verb.capitalize()} a {thing}", f"{verb.capitalize()} a new {thing}."]
            ),
            parameters=parameters,
            topic=verb + thing,
            ask=ask,
            result=lambda value: self.outcome(thing),
        )

    def sum(self) -> Function:
        m = self.m
        a, b = m.choice(
            [("a", "b"), ("a", "b"), ("x", "y"), ("first", "second"), ("left", "right")]
        )
        kind = m.choice(["number", "integer"])
        if m.chance(0.5):
            operation, names = (
                "add",
                ["add", "add", "add_numbers", "sum", "calculate_sum", "addition"],
            )
            described = ["Add two numbers", "Adds two numbers together.", "Sum of two numbers"]
            asks = phrases.ASK_SUM
        else:
            operation, word, sign = m.choice(
                [
                    ("multiply", "times", "*"),
                    ("subtract", "minus", "-"),
                    ("divide", "divided by", "/"),
                ]
            )
            names = [operation, operation + "_numbers", operation + "Numbers"]
            described = [f"{operation.capitalize()} two numbers", f"{operation} a by b"]
            asks = [
                operation.capitalize() + " {} and {}",
                "What is {} " + word + " {}?",
                "{} " + sign + " {}",
                operation.capitalize() + " {} by {}.",
                "Calculate {} " + sign + " {}",
            ]

        def ask(casing: Casing) -> Request:
            x, y = m.number(4), m.number(4)
            return Request(text=casing(m.choice(asks).format(x, y)), arguments={a: x, b: y})

        def result(value: str) -> Any:
            number = m.number(5)
            return m.choice([number, number, {m.choice(PLAIN_KEYS): number}])

        return Function(
            name=m.choice(names),
            description=m.choice(described),
            parameters=(Parameter(name=a, type=kind), Parameter(name=b, type=kind)),
            topic=operation,
            ask=ask,
            result=result,
        )

    def search(self) -> Function:
        m = self.m
        key = m.choice(["query", "query", "q", "text", "search_query"])

        def about(value: str) -> str:
            return m.choice(phrases.ASK_SEARCH).format(value)

        def ask(casing: Casing) -> Request:
            value = m.choice([m.choice(words.TOPICS), m.phrase(4), m.phrase(4), m.value()])
            return Request(text=casing(about(value)), arguments={key: casing(value)})

        def result(value: str) -> Any:
            hit = {m.choice(["title", "name"]): m.phrase(4)}
            if m.chance(0.6):
                hit[m.choice(["snippet", "text", "content"])] = m.phrase(8)
            return m.choice([m.phrase(6), {"results": [hit]}, [hit], {"results": [m.phrase(4)]}])

        return Function(
            name=m.choice(["search", "search", "web_search", "search_web", "searchDocs"]),
            description=m.choice(["Search the web", "Search for information", "Search documents."]),
            parameters=(Parameter(name=key, description=m.choice(["The search query", ""])),),
            topic="search",
            ask=ask,
            result=result,
            about=about,
        )

    def message(self) -> Function:
        m = self.m
        to, body = m.choice(
            [("to", "text"), ("recipient", "message"), ("to", "body"), ("name", "text")]
        )

        def ask(casing: Casing) -> Request:
            name, text = m.name(), m.phrase(5)
            asked = m.choice(
                [
                    "Send a message to {} saying {}",
                    "Tell {} that {}",
                    "Message {}: {}",
                    "Write to {}: {}",
                ]
            ).format(name, text)
            return Request(text=casing(asked), arguments={to: casing(name), body: casing(text)})

        return Function(
            name=m.choice(["send_message", "notify", "send_email", "sendMessage"]),
            description=m.choice(["Send a message to a person", "Sends a message."]),
            parameters=(Parameter(name=to), Parameter(name=body)),
            topic="message",
            ask=ask,
            result=lambda value: self.outcome("message"),
        )

    def bare(self) -> Function:
        """A function without arguments."""
        m = self.m
        if m.chance(0.4):
            noun, name = "time", m.choice(["get_time", "get_current_time", "now"])
            asks = [
                "What time is it?",
                "Tell me the time",
                "what's the time?",
                "What time is it now?",
            ]
        else:
            noun = m.known(words.NOUNS, words.HELD_OUT_NOUNS)
            name = self._name(["get", "list", "show"], noun)
            asks = [
                f"What is the {noun}?",
                f"Show me the {noun}",
                f"Get the {noun}.",
                f"Tell me the {noun}.",
            ]

        def ask(casing: Casing) -> Request:
            return Request(text=casing(m.choice(asks)), arguments={})

        return Function(
            name=name,
            description=m.choice(
                [f"Get the {noun}", f"Returns the current {noun}.", f"The {noun}"]
            ),
            parameters=(),
            topic=noun,
            ask=ask,
            result=lambda value: self.fields(noun, "id", str(m.number(3))),
        )

    # -- names, questions, results ---------------------------------------------------------------

    def _name(self, verbs: list[str], noun: str) -> str:
        m = self.m
        snake, verb = noun.replace(" ", "_"), m.choice(verbs)
        camel = "".join(part.capitalize() for part in noun.split())
        x = m.random.random()
        if x < 0.12:
            return m.choice([m.word(), f"{m.word()}_{m.word()}", f"{m.word()}_{snake}"])
        if x < 0.24:
            return verb + camel
        if x < 0.45:
            before = m.choice(["current", "latest", "all", "new", "my", "", "", m.word()])
            kind = m.known(words.KINDS, words.HELD_OUT_KINDS)
            after = m.choice(["", "", "by_" + kind, "for_" + m.word(), "data", "info", m.word()])
            return "_".join(part for part in (verb, before, snake, after) if part)
        suffix = m.choice(["lookup", "tool", "api", "service"])
        return m.choice([f"{verb}_{snake}"] * 4 + [f"{snake}_{suffix}", snake])

    def _verb_name(self, verb: str, thing: str) -> str:
        m, snake = self.m, verb.replace(" ", "_")
        camel = verb.split()[0] + "".join(w.capitalize() for w in [*verb.split()[1:], thing])
        extra = m.word()
        return m.choice(
            [f"{snake}_{thing}"] * 3 + [camel, f"{thing}_{snake}", f"{snake}_{extra}_{thing}"]
        )

    def question(self, noun: str, value: str) -> str:
        """A request for the ``noun`` of ``value``."""
        m = self.m
        text = self._question(noun, value)
        if m.chance(0.15):
            extra = [
                " today",
                " today",
                " right now",
                " please",
                " now",
                ", please",
                " at the moment",
            ]
            text = _inserted(text, m.choice(extra))
        if m.chance(0.06):
            text = (
                m.choice(
                    [
                        "Hi! ",
                        "Hello, ",
                        "Hey, ",
                        "Please help: ",
                        "Thanks. ",
                        "I am planning a trip. ",
                        "A friend asked me: ",
                    ]
                )
                + text
            )
        return text

    def _question(self, noun: str, value: str) -> str:
        m = self.m
        if noun == "weather" and m.chance(0.6):
            return m.choice(phrases.ASK_WEATHER).format(v=value)
        if noun == "time" and m.chance(0.7):
            return m.choice(phrases.ASK_TIME).format(v=value)
        return m.choice(phrases.ASK_LOOKUP).format(
            n=noun, p=m.choice(["in", "for", "of", "of"]), v=value
        )

    def fields(self, topic: str, kind: str, value: str) -> Any:
        """A look-up's result: several fields mostly, else a bare value."""
        m = self.m
        if m.chance(0.15):
            return m.choice(
                [
                    m.phrase(3),
                    m.number(4),
                    m.time(),
                    m.choice(words.CONDITIONS),
                    f"{m.number(2)} degrees and {m.choice(words.CONDITIONS)}",
                    f"{m.number(2)}°C and {m.choice(words.CONDITIONS)}",
                    f"{m.number(2)}°C",
                    f"{m.number(2)} C, {m.choice(words.CONDITIONS)}",
                ]
            )
        made: dict[str, Any] = {}
        if topic == "weather" or m.chance(0.2):
            for key, draw in (
                (
                    m.choice(["temperature", "temp", "temp_c", "temperature_c", "degrees"]),
                    self._measure,
                ),
                (
                    m.choice(["unit", "units"]),
                    lambda: m.choice(["C", "F", "celsius", "fahrenheit"]),
                ),
                (
                    m.choice(["condition", "conditions", "sky", "description"]),
                    lambda: m.choice(words.CONDITIONS),
                ),
                ("humidity", lambda: m.number(2)),
                (m.choice(["wind", "wind_speed", "wind_kph"]), self._measure),
            ):
                if m.chance(0.55):
                    made[key] = draw()
        elif topic == "time":
            made[m.choice(["time", "local_time", "datetime"])] = m.time()
            if m.chance(0.5):
                made[m.choice(["timezone", "date", "day"])] = m.choice(
                    [m.date(), m.choice(words.DAYS), "CET"]
                )
        wanted = m.choice([1, 2, 3, 3, 4])
        while len(made) < wanted:
            key = topic.replace(" ", "_") if m.chance(0.3) else m.choice(words.FIELDS)
            made[m.word() if m.chance(0.2) else key] = self._leaf()
        items = list(made.items())
        if m.chance(0.2):
            m.random.shuffle(items)
        if m.chance(0.5):
            echoed = value if m.chance(0.85) else f"{value}, {m.choice(list(words.CAPITALS))}"
            items.insert(0, (m.choice([kind, kind, "city", "location", "name"]), echoed))
            items = list(dict(items).items())
        if m.chance(0.08):
            split = m.random.randint(0, len(items) - 1)
            nested = {m.choice(["current", "data", "info", m.word()]): dict(items[split:])}
            return dict(items[:split]) | nested
        return dict(items)

    def _measure(self) -> float:
        m = self.m
        number = m.number(2)
        return m.choice([number, number, -number, number + m.random.randint(1, 9) / 10])

    def _leaf(self) -> Any:
        m = self.m
        return m.choice(
            [
                m.number(5),
                m.number(3),
                self._measure(),
                m.phrase(2),
                m.capitalised(),
                m.date(),
                m.choice(words.CONDITIONS),
                m.chance(0.5),
                [m.word() for _ in range(m.choice([1, 2, 3]))],
                m.phrase(4),
                m.time(),
                m.name(),
                m.city(),
                f"{m.number(2)}°C",
                f"{m.number(3)} {m.choice(['km', 'km/h', 'EUR', '%'])}",
                f"https://{m.word()}.com/{m.word()}",
                f"{m.word()}@{m.word()}.org",
            ]
        )

    def outcome(self, thing: str) -> Any:
        """An action's result: done, failed, or some fields."""
        m = self.m
        x = m.random.random()
        if x < 0.45:
            return m.choice(
                ["ok", "done", "success", {"status": "ok"}, {"ok": True}, {"success": True}]
            )
        if x < 0.65:
            return self.failure()
        fields: dict[str, Any] = {m.choice(["id", thing + "_id", "number"]): m.number(5)}
        fields[m.choice(["status", "state", "created"])] = m.choice(
            ["created", "open", m.date(), m.word()]
        )
        return fields

    def failure(self) -> Any:
        message = self.m.choice(["not found", "timeout", "permission denied", self.m.phrase(4)])
        return self.m.choice(
            [f"Error: {message}", {"error": message}, {"error": {"message": message}}]
        )


PLAIN_KEYS = ["result", "value", "answer", "output", "sum"]


def _inserted(text: str, extra: str) -> str:
    """``extra`` before the final punctuation."""
    return text[:-1] + extra + text[-1] if text[-1] in "?." else text + extra


def leaves(key: str, value: Any) -> list[tuple[str, str]]:
    """A JSON value's leaves as (key, text); a list's items share one leaf."""
    match value:
        case dict():
            return [leaf for k, v in value.items() for leaf in leaves(k, v)]
        case list() if any(isinstance(item, dict | list) for item in value):
            return [leaf for item in value for leaf in leaves(key, item)]
        case list():
            return [(key, ", ".join(_plain(item) for item in value))]
        case _:
            return [(key, _plain(value))]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def spoken(result: Any, subject: str | None) -> str:
    """The assistant's sentence for a result; ``subject`` is what the call asked about."""
    if result in ("ok", "done", "success", {"status": "ok"}, {"ok": True}, {"success": True}):
        return "Done."
    if isinstance(result, str) and result.startswith("Error: "):
        return f"That did not work: {result.removeprefix('Error: ')}."
    if isinstance(result, dict) and "error" in result:
        return f"That did not work: {leaves('', result)[0][1]}."
    fields = [(key, text) for key, text in leaves("", result) if text != subject]
    said = ", ".join(
        text if key in ("", *PLAIN_KEYS) else f"{key.replace('_', ' ')} {text}"
        for key, text in fields
    )
    return (
        f"Here is what I found for {subject}: {said}."
        if subject
        else f"Here is the result: {said}."
    )


class Schemas:
    """Writes functions as one client would: one order of keys, one taste in optional keys."""

    def __init__(self, material: Material) -> None:
        m = self.m = material
        self.outer = m.choice(
            [["name", "description", "parameters"]] * 6
            + [["name", "description", "parameters", "strict"]] * 3
            + [
                ["name", "parameters"],
                ["name", "parameters", "description"],
                ["description", "name", "parameters"],
                ["name", "description", "strict", "parameters"],
                ["name", "strict", "parameters"],
            ]
        )
        self.inner = m.choice(
            [["type", "properties", "required"]] * 5
            + [["type", "properties", "required", "additionalProperties"]] * 3
            + [
                ["properties", "required", "type"],
                ["properties", "required", "title", "type"],
                ["type", "properties", "additionalProperties", "required"],
                ["$schema", "type", "properties", "required", "additionalProperties"],
                ["type", "required", "properties"],
            ]
        )
        self.property = m.choice(
            [["type", "description", "enum"]] * 4
            + [["type", "enum", "description"]] * 2
            + [["type", "enum"]] * 4
            + [
                ["description", "type", "enum"],
                ["title", "type", "enum"],
                ["enum", "type", "title"],
            ]
        )
        self.strict = m.chance(0.8)
        self.type_last = m.chance(0.03)

    def schema(self, function: Function) -> dict[str, Any]:
        made = {
            "name": function.name,
            "description": function.description,
            "parameters": self._parameters(function),
            "strict": self.strict,
        }
        body = {key: made[key] for key in self.outer}
        if self.type_last:
            return {"function": body, "type": "function"}
        return {"type": "function", "function": body}

    def _parameters(self, function: Function) -> dict[str, Any]:
        required = [p.name for p in function.parameters if p.required]
        made: dict[str, Any] = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "title": function.name,
            "properties": {p.name: self._property(p) for p in function.parameters},
            "required": required,
            "additionalProperties": False,
        }
        if not required and self.m.chance(0.7):
            del made["required"]
        return {key: made[key] for key in self.inner if key in made}

    def _property(self, parameter: Parameter) -> dict[str, Any]:
        made: dict[str, Any] = {
            "title": parameter.name.replace("_", " ").title(),
            "type": parameter.type,
            "description": parameter.description,
            "enum": list(parameter.enum),
        }
        written = {key: made[key] for key in self.property if made[key]}
        if parameter.type == "array":
            written["items"] = {"type": "string"}
        if not parameter.required and not parameter.enum and self.m.chance(0.1):
            del written["type"]
            written["anyOf"] = [{"type": parameter.type}, {"type": "null"}]
        if not parameter.required and self.m.chance(0.15):
            written["default"] = self.m.choice([None, 10, "auto", False])
        return written
