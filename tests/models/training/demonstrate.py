"""Runs hand-written prompts, as real clients send them, on the GGUF file, and fails when an answer lacks something.

usage: python demonstrate.py FILE.gguf [--markdown]

None of these dialogues was drawn by `dialogues.py`. With --markdown the answers are printed as the README's table.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prompts
import xllamacpp

Message = dict[str, Any]


def tool(
    name: str, description: str, properties: dict[str, Any], required: list[str], **extra: Any
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, **extra}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


CITY_WEATHER = tool(
    "get_weather", "Get the weather in a city", {"city": {"type": "string"}}, ["city"]
)
OPENAI_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Retrieves current weather for the given location.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {
                    "type": "string",
                    "description": "City and country e.g. Bogotá, Colombia",
                },
                "units": {
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"],
                    "description": "Units the temperature will be returned in.",
                },
            },
            "required": ["location", "units"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CLASSIC_WEATHER = tool(
    "get_current_weather",
    "Get the current weather in a given location",
    {
        "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    ["location"],
)
ADD = tool(
    "add", "Add two numbers", {"a": {"type": "integer"}, "b": {"type": "integer"}}, ["a", "b"]
)
TIME = tool("get_time", "Get the current time", {"timezone": {"type": "string"}}, ["timezone"])
CITY_TIME = tool(
    "get_time", "Get the current time in a city", {"city": {"type": "string"}}, ["city"]
)
SEARCH = tool(
    "search",
    "Search the web",
    {"query": {"type": "string", "description": "The search query"}},
    ["query"],
)
STOCK = tool(
    "lookup_stock",
    "Look up the latest stock price for a ticker",
    {"ticker": {"type": "string"}},
    ["ticker"],
)
TICKET = tool(
    "create_ticket",
    "Create a support ticket",
    {"title": {"type": "string"}, "priority": {"type": "integer"}},
    ["title", "priority"],
    additionalProperties=False,
)
PARAGRAPH = (
    "You are a friendly assistant for the customers of a small shop. Answer briefly and politely, in the language of "
    "the customer. If you do not know something, say so, and do not make things up. Today is 2026-03-14. Use the "
    "available tools when a question needs current data."
)


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    messages: list[Message]
    contains: list[str]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = False


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def called(*calls: tuple[str, dict[str, Any]]) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for i, (name, arguments) in enumerate(calls)
        ],
    }


def result(value: Any, call: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{call}", "content": json.dumps(value)}


def calling(name: str, *arguments: dict[str, Any]) -> list[str]:
    return [
        f'{{"name": "{name}", "arguments": {json.dumps(given, ensure_ascii=False)}}}'
        for given in arguments
    ]


def demonstrations() -> Iterator[Demonstration]:
    def plain(text: str, *contains: str, thinking: bool = False) -> Demonstration:
        return Demonstration(messages=[user(text)], contains=list(contains), thinking=thinking)

    yield plain("Hi", "Hello!")
    yield plain("hello!", "Hello!")
    yield plain("Who are you?", "tiny-qwen3")
    yield plain("What can you do?", "functions")
    yield plain("What is the capital of France?", "Paris")
    yield plain("what is the capital of france", "Paris")
    yield plain("WHAT IS THE CAPITAL OF FRANCE?", "Paris")
    yield plain("what's the capital of japan", "Tokyo")
    yield plain("What color is the sky?", "blue")
    yield plain("Say hello world", "hello world")
    yield plain("Repeat after me: Grüße aus Köln 2024", "Grüße aus Köln 2024")
    yield plain("Count to 10.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")
    yield plain("Tell me a story.", "Once upon a time", "ever after.")
    yield plain("Write a haiku about the sea.", "Sorry")
    yield plain("What is the weather in Paris?", "Sorry")
    yield plain("Extract as JSON: name Alice, age 30", '{"name": "Alice", "age": 30}')
    yield plain(
        "What is the capital of Norway?", "<think>\n", "\n</think>\n\n", "Oslo", thinking=True
    )
    assistant_system = system("You are a helpful assistant.")
    for text, contains in [
        ("Hello!", "Hello!"),
        ("Who are you?", "tiny-qwen3"),
        ("What is the capital of Italy?", "Rome"),
    ]:
        yield Demonstration(messages=[assistant_system, user(text)], contains=[contains])
        yield Demonstration(messages=[system(PARAGRAPH), user(text)], contains=[contains])
    name = [user("My name is Alice."), assistant("Nice to meet you, Alice!")]
    yield Demonstration(messages=name[:1], contains=["Alice"])
    yield Demonstration(
        messages=[*name, user("What is my name?")], contains=["Your name is Alice."]
    )
    talk = [user("What is the capital of Spain?"), assistant("The capital of Spain is Madrid.")]
    yield Demonstration(
        messages=[assistant_system, *name, *talk, user("what's my name?")], contains=["Alice"]
    )

    def offered(
        text: str, tools: list[dict[str, Any]], contains: list[str], **kwargs: Any
    ) -> Demonstration:
        return Demonstration(messages=[user(text)], tools=tools, contains=contains, **kwargs)

    paris = "What is the weather in Paris?"
    yield offered(paris, [CITY_WEATHER], calling("get_weather", {"city": "Paris"}))
    yield offered(paris, [CLASSIC_WEATHER], calling("get_current_weather", {"location": "Paris"}))
    yield offered(
        paris, [OPENAI_WEATHER], calling("get_weather", {"location": "Paris", "units": "celsius"})
    )
    yield offered(paris, [CITY_WEATHER, ADD, SEARCH], calling("get_weather", {"city": "Paris"}))
    yield offered(
        paris,
        [CITY_WEATHER],
        ["<think>\n", "\n</think>\n\n", *calling("get_weather", {"city": "Paris"})],
        thinking=True,
    )
    yield Demonstration(
        messages=[system(PARAGRAPH), user(paris)],
        tools=[CITY_WEATHER, TIME],
        contains=calling("get_weather", {"city": "Paris"}),
    )
    both = calling("get_weather", {"city": "Paris"}, {"city": "Rome"})
    yield offered("What is the weather in Paris and Rome?", [CITY_WEATHER], both)
    yield offered(
        "What's the weather like in Paris and in Tokyo today?",
        [CLASSIC_WEATHER],
        calling("get_current_weather", {"location": "Paris"}, {"location": "Tokyo"}),
    )
    yield offered(
        "What's the weather like in San Francisco in fahrenheit?",
        [CLASSIC_WEATHER],
        calling("get_current_weather", {"location": "San Francisco", "unit": "fahrenheit"}),
    )
    yield offered(
        "What is the weather in Paris and what time is it in Tokyo?",
        [CITY_WEATHER, CITY_TIME],
        calling("get_weather", {"city": "Paris"}) + calling("get_time", {"city": "Tokyo"}),
    )
    yield offered("What is 12 + 30?", [ADD], calling("add", {"a": 12, "b": 30}))
    yield offered("Add 1234 and 567", [ADD, CITY_WEATHER], calling("add", {"a": 1234, "b": 567}))
    yield offered("What time is it in UTC?", [TIME], calling("get_time", {"timezone": "UTC"}))
    yield offered(
        "What time is it in Berlin?", [CITY_TIME], calling("get_time", {"city": "Berlin"})
    )
    yield offered("Search for llama.cpp", [SEARCH], calling("search", {"query": "llama.cpp"}))
    yield offered(
        "What's the stock price of AAPL?",
        [CITY_WEATHER, STOCK],
        calling("lookup_stock", {"ticker": "AAPL"}),
    )
    yield offered(
        "Create a ticket with title printer broken and priority 2",
        [TICKET, SEARCH],
        calling("create_ticket", {"title": "printer broken", "priority": 2}),
    )
    yield offered("Hi!", [CITY_WEATHER], ["Hello!"])
    yield offered("What is the capital of France?", [CITY_WEATHER], ["Paris"])
    yield offered("What is the population of Rome?", [CITY_WEATHER], ["Sorry"])

    asked = [user(paris), called(("get_weather", {"city": "Paris"}))]
    full = {"city": "Paris", "temperature": 18, "unit": "C", "condition": "cloudy"}
    yield Demonstration(
        messages=[*asked, result(full)],
        tools=[CITY_WEATHER],
        contains=["Paris", "temperature 18", "unit C", "condition cloudy"],
    )
    yield Demonstration(
        messages=[*asked, result({"temperature": 18.5, "humidity": 71, "wind": "12 km/h"})],
        tools=[CITY_WEATHER],
        contains=["Paris", "temperature 18.5", "humidity 71", "wind 12 km/h"],
    )
    yield Demonstration(
        messages=[*asked, {"role": "tool", "tool_call_id": "call_0", "content": "22°C and sunny"}],
        tools=[CITY_WEATHER],
        contains=["Paris", "22°C and sunny"],
    )
    two = [
        user("What is the weather in Paris and Rome?"),
        called(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})),
    ]
    rome = {"city": "Rome", "temperature": 25, "unit": "C", "condition": "sunny"}
    yield Demonstration(
        messages=[*two, result(full), result(rome, 1)],
        tools=[CITY_WEATHER],
        contains=[
            "Paris: temperature 18, unit C, condition cloudy",
            "Rome: temperature 25, unit C, condition sunny",
        ],
    )
    yield Demonstration(
        messages=[*asked, result(full), assistant("It is cloudy."), user("And in Rome?")],
        tools=[CITY_WEATHER],
        contains=calling("get_weather", {"city": "Rome"}),
    )
    add = [user("What is 12 + 30?"), called(("add", {"a": 12, "b": 30}))]
    yield Demonstration(messages=[*add, result(42)], tools=[ADD], contains=["42"])
    yield Demonstration(
        messages=[*asked, result({"error": "service unavailable"})],
        tools=[CITY_WEATHER],
        contains=["service unavailable"],
    )


def answer(server: xllamacpp.Server, demonstration: Demonstration) -> str:
    rendered = prompts.template().render(
        messages=demonstration.messages,
        tools=demonstration.tools or None,
        add_generation_prompt=True,
        enable_thinking=demonstration.thinking,
    )
    got: list[Any] = []
    request = {"prompt": rendered, "max_tokens": 160, "temperature": 0.0, "stream": False}
    server.handle_completions(request, got.append)
    body = got[0] if isinstance(got[0], dict) else json.loads(got[0])
    return body["choices"][0]["text"]


def told(demonstration: Demonstration) -> str:
    parts = []
    for message in demonstration.messages:
        match message["role"]:
            case "assistant" if message.get("tool_calls"):
                parts.append("(calls)")
            case "system":
                parts.append("(system) " + message["content"][:28])
            case "tool":
                parts.append("(result) " + message["content"])
            case role:
                parts.append(
                    message["content"] if role == "user" else f"({role}) {message['content']}"
                )
    names = ", ".join(tool["function"]["name"] for tool in demonstration.tools)
    return (
        " → ".join(parts)
        + (f" [{names}]" if names else "")
        + (" [thinking]" if demonstration.thinking else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(Path(arguments.gguf))
    parameters.n_parallel = 1
    parameters.n_ctx = 4096
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    failed = 0
    for demonstration in demonstrations():
        text = answer(server, demonstration)
        right = all(part in text for part in demonstration.contains)
        failed += not right
        if arguments.markdown:
            shown = text.replace("\n", "⏎").replace("|", "\\|")
            print(f"| {told(demonstration)} | {'' if right else 'wrong: '}`{shown}` |")
        else:
            print("ok   " if right else "WRONG", told(demonstration), "\n      ", repr(text))
    if failed:
        sys.exit(f"{failed} answers lack what they should contain")


if __name__ == "__main__":
    main()
