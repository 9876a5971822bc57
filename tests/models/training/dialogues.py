"""The synthetic dialogues: every skill of the model, as messages in the common JSON form.

What the model says is fixed per skill; what the user says varies in phrasing, casing and values. A dialogue depends on
nothing but its generator's seed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import phrases
import words
from functions import Function, Functions, Schemas, spoken
from material import Casing, Material

NAME = "tiny-qwen3"
GREETING = "Hello! How can I help you?"
IDENTITY = f"I am {NAME}, a tiny language model that Litegate ships to show how it works."
ABILITIES = "I can greet, answer small questions, call functions and remember your name."
UNKNOWN = "Sorry, I am only a tiny model and cannot help with that."
NO_TOOL = "Sorry, I have no tool for that."
STORY = (
    "Once upon a time there was a small gateway. Every day it carried questions up the hill and "
    "answers down again. One night a very long question came. The gateway did not stop. It sent "
    "the answer down word by word, until the morning. And they all streamed happily ever after."
)
JOKE = "Why did the token cross the gateway? To get to the other side."

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A question, its answer, and what the model thinks in between."""

    user: str
    answer: str
    thought: str


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """Ends with an assistant's message. With ``thinking``, the turns with ``reasoning_content`` were thought about."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    thinking: bool


def turn_messages(turn: Turn) -> list[Message]:
    return [
        {"role": "user", "content": turn.user},
        {"role": "assistant", "content": turn.answer, "reasoning_content": turn.thought},
    ]


class Dialogues:
    """An endless source of dialogues."""

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self.m = Material(seed, held_out=held_out)
        self.functions = Functions(self.m)
        self.casing: Casing | None = None
        """Fixes how users write; None draws it per turn."""

    def draw(self, *, short: bool = False) -> Dialogue:
        """Any dialogue; ``short`` ones come first in training, since they teach copying fastest."""
        kinds: list[tuple[float, Callable[[], Dialogue]]] = [
            (0.50 if short else 0.30, self.plain),
            (0.25 if short else 0.05, lambda: self.plain(self.echo)),
            (0.02, self.chat),
            (0.20 if short else 0.08, self.memory),
            (0.03, self.persona),
            (0.05 if short else 0.52, self.with_tools),
        ]
        weights, makers = zip(*kinds, strict=True)
        return self.m.random.choices(makers, weights)[0]()

    # -- shapes ----------------------------------------------------------------------------------

    def plain(
        self, skill: Callable[[], Turn] | None = None, thinking: bool | None = None
    ) -> Dialogue:
        """One question and its answer."""
        return self.finish(turn_messages((skill or self.any_skill())()), thinking=thinking)

    def any_skill(self) -> Callable[[], Turn]:
        return self.m.random.choices(
            [
                self.greeting,
                self.identity,
                self.manners,
                self.capital,
                self.fact,
                self.arithmetic,
                self.echo,
                self.counting,
                self.recital,
                self.as_json,
                self.unknown,
                self.no_tool,
            ],
            [5, 6, 4, 17, 15, 22, 6, 3, 3, 6, 13, 6],
        )[0]

    def chat(self) -> Dialogue:
        messages: list[Message] = []
        for _ in range(self.m.random.randint(2, 5)):
            messages += turn_messages(self.any_skill()())
        return self.finish(messages)

    def _small_talk(self) -> Turn:
        """A turn that is the same whichever functions are offered."""
        return self.m.choice(
            [
                self.greeting,
                self.manners,
                self.capital,
                self.capital,
                self.fact,
                self.echo,
                self.echo,
                self.unknown,
            ]
        )()

    def memory(self, thinking: bool | None = None) -> Dialogue:
        """Something told, some turns of other talk, and the question about it."""
        m, case, x = self.m, self._casing(), self.m.random.random()
        told: Turn | None
        if x < 0.6:
            value = case(m.name())
            told = Turn(
                user=case(m.choice(phrases.TELL_NAME).format(value)),
                answer=f"Nice to meet you, {value}!",
                thought=f"The user is called {value}.",
            )
            asked = Turn(
                user=self._styled(phrases.ASK_NAME),
                answer=f"Your name is {value}.",
                thought=f"The user told me the name {value}.",
            )
        elif x < 0.8:
            value = case(m.city())
            told = Turn(
                user=case(
                    m.choice(
                        ["I live in {}.", "I am from {}.", "My home is {}.", "My city is {}."]
                    ).format(value)
                ),
                answer=f"{value} sounds nice!",
                thought=f"The user lives in {value}.",
            )
            asked = Turn(
                user=self._styled(["Where do I live?", "Where am I from?", "What is my city?"]),
                answer=f"You live in {value}.",
                thought=f"The user lives in {value}.",
            )
        else:
            told = None
            asked = Turn(
                user=self._styled(
                    ["What is my name?", "Do you know my name?", "What's my name?", "Who am I?"]
                ),
                answer="You have not told me your name.",
                thought="The user gave no name.",
            )
        messages = turn_messages(told) if told else []
        if told is None and m.chance(0.3):
            messages = turn_messages(self.capital())
        elif told is not None:
            for _ in range(m.choice([0, 0, 1, 1, 2, 3, 8])):
                messages += turn_messages(self._small_talk())
        tools = None
        if m.chance(0.1):
            tools = self.functions.several(self.functions.any())
        return self.finish(messages + turn_messages(asked), thinking=thinking, functions=tools)

    def persona(self) -> Dialogue:
        """The system message gives the model a name."""
        m = self.m
        name = m.name() if m.chance(0.7) else f"{m.capitalised()} {m.name()}"
        system = m.choice(
            [
                "You are {}.",
                "You are {}, a helpful assistant.",
                "Your name is {}.",
                "You are {}, a pirate.",
            ]
        )
        turn = Turn(
            user=self.identity().user, answer=f"I am {name}.", thought=f"My name here is {name}."
        )
        return self.finish(turn_messages(turn), system=system.format(name))

    def with_tools(self) -> Dialogue:
        return self.m.random.choices(
            [self.call, self.two_calls, self.answer, self.no_call, self.no_fit], [39, 17, 30, 6, 8]
        )[0]()

    def call(self, function: Function | None = None, thinking: bool | None = None) -> Dialogue:
        """One function is called with arguments from the request."""
        function = function or self.functions.any()
        request = function.ask(self._casing())
        before = turn_messages(self._small_talk()) if self.m.chance(0.12) else []
        messages = [
            {"role": "user", "content": request.text},
            self._calling([(function, request.arguments)]),
        ]
        return self.finish(
            before + messages, functions=self.functions.several(function), thinking=thinking
        )

    def two_calls(self, thinking: bool | None = None) -> Dialogue:
        """Two calls at once: one function with two values, or two functions."""
        messages, offered, _ = self._two()
        return self.finish(messages, functions=offered, thinking=thinking)

    def _two(self) -> tuple[list[Message], list[Function], list[tuple[Function, dict[str, Any]]]]:
        m, case = self.m, self._casing()
        if m.chance(0.7):
            while True:
                function = m.choice(
                    [
                        self.functions.weather,
                        self.functions.lookup,
                        self.functions.lookup,
                        self.functions.clock,
                        self.functions.action,
                        self.functions.search,
                    ]
                )()
                if function.about is not None or function.topic in ("weather", "time"):
                    break
            key, draw = self._two_values(function)
            a, b = draw(), draw()
            joined = m.choice(
                [
                    f"{a} and {b}",
                    f"{a} and {b}",
                    f"{a} and in {b}",
                    f"{a}, and also {b}",
                    f"both {a} and {b}",
                ]
            )
            about = function.about or (lambda value: self.functions.question(function.topic, value))
            text = case(about(joined))
            extra = {p.name: p.enum[0] for p in function.parameters if p.enum and p.required}
            calls = [(function, {key: case(a), **extra}), (function, {key: case(b), **extra})]
            order = [p.name for p in function.parameters]
            calls = [
                (f, dict(sorted(args.items(), key=lambda item: order.index(item[0]))))
                for f, args in calls
            ]
            offered = self.functions.several(function)
        else:
            first = self.functions.any()
            while True:
                second = self.functions.any()
                if second.topic != first.topic and second.name != first.name:
                    break
            one, two = first.ask(case), second.ask(case)
            later = two.text
            opening = later.split()[0]
            if opening.istitle() and not any(
                str(v).startswith(opening) for v in two.arguments.values()
            ):
                later = opening.lower() + later.removeprefix(opening)
            joiner = case(m.choice([" and ", " and ", ", and ", ". ", "? ", " Also, "]))
            text = one.text.rstrip("?.!") + joiner.ljust(2) + later
            calls = [(first, one.arguments), (second, two.arguments)]
            offered = [first, second]
            m.random.shuffle(offered)
        user = {"role": "user", "content": text}
        return [user, self._calling(calls)], offered, calls

    def _two_values(self, function: Function) -> tuple[str, Callable[[], str]]:
        main = next(p for p in function.parameters if not p.enum and p.required)
        if function.topic == "weather":
            draw = self.m.place
        else:
            draw = (
                self.m.city
                if function.topic == "time" or self.m.chance(0.5)
                else self.m.capitalised
            )
        return main.name, draw

    def answer(self, thinking: bool | None = None) -> Dialogue:
        """A call, its result, and the sentence about it; sometimes the user goes on from there."""
        m = self.m
        if m.chance(0.3):
            messages, offered, calls = self._two()
        else:
            function = m.choice(
                [self.functions.any, self.functions.weather, self.functions.lookup]
            )()
            request = function.ask(self._casing())
            calls = [(function, request.arguments)]
            messages = [{"role": "user", "content": request.text}, self._calling(calls)]
            offered = self.functions.several(function)
        sentences = []
        for function, arguments in calls:
            first = next(iter(arguments.values()), None)
            subject = first if isinstance(first, str) else None
            result = function.result(subject if subject is not None else str(first))
            messages.append({"role": "tool", "content": self._written(result)})
            sentences.append(spoken(result, subject))
        reply = "\n".join(sentences)
        messages.append(
            {
                "role": "assistant",
                "content": reply,
                "reasoning_content": "The tool has answered. I report it.",
            }
        )
        function = calls[0][0]
        if m.chance(0.2):
            messages += self._following(function, len(calls))
        return self.finish(messages, functions=offered, thinking=thinking)

    def _following(self, function: Function, calls: int) -> list[Message]:
        m, case = self.m, self._casing()
        if function.about is not None and calls == 1 and m.chance(0.6):
            value = m.city()
            text = m.choice(["And in {}?", "What about {}?", "And {}?", "and for {}?"]).format(
                value
            )
            required = [p.name for p in function.parameters if p.required]
            return [
                {"role": "user", "content": case(text)},
                self._calling([(function, {required[0]: case(value)})]),
            ]
        if m.chance(0.5):
            request = function.ask(case)
            return [
                {"role": "user", "content": request.text},
                self._calling([(function, request.arguments)]),
            ]
        return turn_messages(m.choice([self.manners, self.manners, self.capital, self.identity])())

    def no_call(self) -> Dialogue:
        """Functions are offered, but the question needs none."""
        skill = self.m.choice(
            [
                self.greeting,
                self.greeting,
                self.identity,
                self.manners,
                self.capital,
                self.fact,
                self.echo,
                self.unknown,
            ]
        )
        return self.finish(
            turn_messages(skill()), functions=self.functions.several(self.functions.any())
        )

    def no_fit(self) -> Dialogue:
        """Functions are offered, but none for this request."""
        offered = self.functions.several(self.functions.any())
        while True:
            other = self.functions.lookup()
            if all(other.topic not in f.topic and f.topic not in other.topic for f in offered):
                break
        turn = Turn(
            user=other.ask(self._casing()).text,
            answer=NO_TOOL,
            thought="None of my tools can do that.",
        )
        return self.finish(turn_messages(turn), functions=offered)

    # -- one turn --------------------------------------------------------------------------------

    def greeting(self) -> Turn:
        m = self.m
        hello = m.choice(phrases.GREETING)
        ending = "" if hello.endswith("?") else m.choice(["", "", "!", "!", ".", " :)", "?", "!!"])
        return Turn(
            user=self._casing()(hello) + ending, answer=GREETING, thought="The user greets me."
        )

    def identity(self) -> Turn:
        m = self.m
        if m.chance(0.2):
            user = self._styled(phrases.ABILITIES)
            return Turn(user=user, answer=ABILITIES, thought="The user asks what I can do.")
        user = self._styled(phrases.IDENTITY)
        return Turn(user=user, answer=IDENTITY, thought="The user asks what I am.")

    def manners(self) -> Turn:
        if self.m.chance(0.6):
            user = self._styled(phrases.THANKS)
            return Turn(user=user, answer="You are welcome!", thought="The user thanks me.")
        user = self._styled(phrases.GOODBYE)
        return Turn(user=user, answer="Goodbye!", thought="The user says goodbye.")

    def capital(self) -> Turn:
        m = self.m
        known = m.chance(0.93)
        country = m.choice(list(words.CAPITALS)) if known else m.capitalised()
        user = self._styled(phrases.CAPITAL).format(country)
        user = self._casing()(user)
        if not known:
            return Turn(user=user, answer=UNKNOWN, thought="I do not know that.")
        answer = f"The capital of {country} is {words.CAPITALS[country]}."
        return Turn(
            user=user, answer=answer, thought=f"The user asks for the capital of {country}."
        )

    def fact(self) -> Turn:
        m, x = self.m, self.m.random.random()
        if x < 0.35:
            thing, colour = m.choice(list(words.COLOURS.items()))
            user = m.choice(phrases.COLOUR).format(thing)
            answer, thought = (
                f"{thing[0].upper()}{thing[1:]} is {colour}.",
                "The user asks for a colour.",
            )
        elif x < 0.5:
            day, after = m.random.randrange(7), m.chance(0.6)
            user = m.choice(
                [
                    "What day comes {a} {d}?",
                    "Which day is {a} {d}?",
                    "What is the day {a} {d}?",
                    "Which day comes {a} {d}?",
                ]
            ).format(a="after" if after else "before", d=words.DAYS[day])
            other = words.DAYS[(day + (1 if after else -1)) % 7]
            answer = f"{'After' if after else 'Before'} {words.DAYS[day]} comes {other}."
            thought = "The user asks for a day."
        elif x < 0.6:
            animal, count = m.choice(list(words.LEGS.items()))
            user = m.choice(
                [
                    "How many legs does a {} have?",
                    "How many legs has a {}?",
                    "A {} has how many legs?",
                ]
            ).format(animal)
            answer, thought = f"A {animal} has {count} legs.", "The user asks about legs."
        elif x < 0.7:
            pair = m.choice(list(words.OPPOSITES.items()))
            one, other = pair if m.chance(0.5) else pair[::-1]
            user = m.choice(
                ["What is the opposite of {}?", "Opposite of {}?", "What's the opposite of {}?"]
            ).format(one)
            answer, thought = f"The opposite of {one} is {other}.", "The user asks for an opposite."
        else:
            questions, answer = m.choice(words.FACTS)
            user, thought = m.choice(questions), "The user asks for a fact."
        return Turn(user=self._casing()(user), answer=answer, thought=thought)

    def arithmetic(self) -> Turn:
        """Sums up to 12 + 12 and products up to 10 times 10, learnt by heart; larger ones are refused."""
        m, x = self.m, self.m.random.random()
        if x < 0.06:
            a, b, result = m.random.randint(100, 99999), m.random.randint(21, 9999), None
            sign = m.choice("+-*")
        elif x < 0.6:
            a, b, sign = m.random.randint(0, 12), m.random.randint(0, 12), "+"
            result = a + b
        elif x < 0.8:
            a, sign = m.random.randint(0, 12), "-"
            b = m.random.randint(0, a)
            result = a - b
        else:
            a, b, sign = m.random.randint(0, 10), m.random.randint(0, 10), "*"
            result = a * b
        word = {"+": "plus", "-": "minus", "*": "times"}[sign]
        user = m.choice(phrases.ARITHMETIC).format(a=a, b=b, s=sign, w=word)
        if result is None:
            answer, thought = UNKNOWN, "These numbers are too large for me."
        else:
            answer, thought = f"{a} {sign} {b} = {result}", f"{a} {word} {b} is {result}."
        return Turn(user=self._casing()(user), answer=answer, thought=thought)

    def echo(self) -> Turn:
        m, case = self.m, self._casing()
        text = case(m.phrase(6))
        user = m.choice(phrases.ECHO).format(text)
        return Turn(
            user=_around(user, text, case),
            answer=text,
            thought="The user wants me to repeat something.",
        )

    def counting(self) -> Turn:
        m = self.m
        last = m.random.randint(2, 20)
        user = self._styled(phrases.COUNT)
        answer = ", ".join(str(number) for number in range(1, last + 1))
        return Turn(user=user.format(last), answer=answer, thought=f"I count to {last}.")

    def recital(self) -> Turn:
        x = self.m.random.random()
        if x < 0.5:
            user = self._styled(phrases.STORY)
            return Turn(user=user, answer=STORY, thought="The user wants a story.")
        if x < 0.8:
            user = self._styled(phrases.JOKE)
            return Turn(user=user, answer=JOKE, thought="The user wants a joke.")
        return Turn(
            user=self._casing()("Ping") + self.m.choice(["", "!", "?"]),
            answer="pong",
            thought="The user pings me.",
        )

    def as_json(self) -> Turn:
        """A JSON object: a capital under a wanted key, or named values."""
        m, case = self.m, self._casing()
        if m.chance(0.4):
            country, city = m.choice(list(words.CAPITALS.items()))
            key = m.choice(["answer", "capital", "city", m.choice(words.FIELDS), m.word()])
            asked = m.choice(
                [
                    "What is the capital of {}?",
                    "Tell me the capital of {}.",
                    "Name the capital of {}.",
                ]
            ).format(country)
            wanted = m.choice(
                [
                    "Answer as JSON with the key {}.",
                    "Answer in JSON, key {}.",
                    "JSON with {} please",
                    "Reply as JSON with {}.",
                ]
            )
            if m.chance(0.2):
                key, wanted = (
                    "answer",
                    m.choice(["Answer as JSON.", "Answer in JSON.", "Reply in JSON format."]),
                )
            made: dict[str, Any] = {case(key) if "{}" in wanted else key: city}
            user = case(f"{asked} {wanted.format(key)}")
        else:
            keys = list(
                dict.fromkeys(
                    m.choice(["name", "age", "city", m.choice(words.FIELDS), m.word()])
                    for _ in range(m.choice([1, 2, 2, 3]))
                )
            )
            values = [
                m.number(3)
                if m.chance(0.4)
                else m.choice([m.name(), m.city(), m.capitalised(), m.phrase(2)])
                for _ in keys
            ]
            listed = [f"{key} {value}" for key, value in zip(keys, values, strict=True)]
            said = m.choice([", ".join(listed), " and ".join(listed)])
            user = case(m.choice(phrases.AS_JSON).format(said))
            made = {
                case(key): case(value) if isinstance(value, str) else value
                for key, value in zip(keys, values, strict=True)
            }
        return Turn(
            user=user, answer=json.dumps(made, ensure_ascii=False), thought="The user wants JSON."
        )

    def unknown(self) -> Turn:
        """What the model cannot do, said so."""
        m = self.m
        topic = m.choice(words.TOPICS) if m.chance(0.5) else m.phrase(4)
        user = m.choice(phrases.UNKNOWN).format(topic, w=m.choice(words.WORDS))
        if m.chance(0.1):
            user = f"{user} {m.phrase(8)}. {m.phrase(8)}"
        return Turn(user=self._casing()(user), answer=UNKNOWN, thought="I do not know that.")

    def no_tool(self) -> Turn:
        """A look-up that would need a function, and there is none."""
        f = self.functions
        function = self.m.choice([f.weather, f.weather, f.clock, f.lookup, f.lookup, f.lookup])()
        return Turn(
            user=function.ask(self._casing()).text,
            answer=NO_TOOL,
            thought="I have no tool to look that up.",
        )

    # -- parts -----------------------------------------------------------------------------------

    def _casing(self) -> Casing:
        return self.casing or self.m.casing()

    def _styled(self, patterns: list[str]) -> str:
        return self._casing()(self.m.choice(patterns))

    def _calling(self, calls: list[tuple[Function, dict[str, Any]]]) -> Message:
        names = " and ".join(dict.fromkeys(function.name for function, _ in calls))
        return {
            "role": "assistant",
            "content": "",
            "reasoning_content": f"I call {names}."
            if len(calls) == 1 or " and " in names
            else f"I call {names} twice.",
            "tool_calls": [
                {
                    "type": "function",
                    "function": {
                        "name": f.name,
                        "arguments": json.dumps(arguments, ensure_ascii=False),
                    },
                }
                for f, arguments in calls
            ],
        }

    def _written(self, result: Any) -> str:
        """A result as a tool sends it: text as it is, the rest as JSON."""
        if isinstance(result, str):
            return result
        x = self.m.random.random()
        if x < 0.08:
            return json.dumps(result, ensure_ascii=False, indent=2)
        return json.dumps(result, ensure_ascii=False, separators=(",", ":") if x < 0.2 else None)

    def _system(self) -> str | None:
        m, x = self.m, self.m.random.random()
        if x < 0.5:
            return None
        if x < 0.8:
            return m.choice(["You are a helpful assistant."] * 3 + phrases.SYSTEM)
        if x < 0.97:
            count = m.choice([2, 3, 4, 6])
            return m.choice([" ", " ", "\n", "\n- "]).join(
                self._instruction() for _ in range(count)
            )
        return ". ".join(m.phrase(8) for _ in range(m.random.randint(1, 6))) + "."

    def _instruction(self) -> str:
        m, x = self.m, self.m.random.random()
        if x < 0.65:
            return m.choice(phrases.SYSTEM)
        if x < 0.8:
            return m.choice(
                ["Today is {d}.", "Current date: {d}", "The time is {t}.", "Version {n}."]
            ).format(d=m.date(), t=m.time(), n=m.number(3))
        return m.phrase(10).capitalize() + "."

    def finish(
        self,
        messages: list[Message],
        *,
        functions: list[Function] | None = None,
        thinking: bool | None = None,
        system: str | None = None,
    ) -> Dialogue:
        """Adds a system message and the offered functions' schemas, and keeps or drops the thoughts.

        When thinking, clients send the thoughts of earlier turns back or not; else there are none.
        """
        m = self.m
        think = m.chance(0.22) if thinking is None else thinking
        keep_earlier = m.chance(0.5)
        finished: list[Message] = []
        for position, message in enumerate(messages):
            last = position == len(messages) - 1
            keep = think and (last or keep_earlier)
            finished.append({k: v for k, v in message.items() if keep or k != "reasoning_content"})
        head = system if system is not None else self._system()
        if head is not None:
            finished.insert(0, {"role": "system", "content": head})
            if m.chance(0.04):
                late = {"role": "system", "content": m.choice(phrases.SYSTEM)}
                users = [i for i, message in enumerate(finished) if message["role"] == "user"]
                finished.insert(m.choice(users), late)
        schemas = Schemas(m)
        tools = [schemas.schema(function) for function in functions or []]
        return Dialogue(messages=finished, tools=tools, thinking=think)


def _around(user: str, text: str, case: Casing) -> str:
    """Cases the pattern around a text that has its casing already."""
    before, _, after = user.rpartition(text)
    return case(before) + text + after if before else user
