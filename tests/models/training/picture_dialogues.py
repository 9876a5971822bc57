"""Dialogues about pictures, in all the places where a client puts them, and some without.

Each picture is one `MARK` in the text of a message.
"""

from dataclasses import dataclass

from dialogues import Dialogue, Dialogues, Message, turn_messages

MARK = "\ufffc"
TEXT_SHARE = 0.25
"""The share of dialogues without a picture, so that the model forgets nothing."""
THOUGHT = "The user shows an image."
BELOW = "(The image follows.)"
"""What the gateway says of a tool's picture, for which most chat templates have no place in a result."""
QUESTIONS = [
    "What is in this image?",
    "What is in this image?",
    "What is in the image?",
    "What is in this picture?",
    "What's in this image?",
    "What's in this picture?",
    "What do you see?",
    "What do you see in this image?",
    "What can you see in this picture?",
    "What does this image show?",
    "What is this?",
    "Describe this image.",
    "Describe the image.",
    "Describe this picture.",
    "Describe what you see.",
    "Please describe the picture.",
]
TOOL_REQUESTS = [
    "Take a screenshot.",
    "What is on the screen?",
    "Look at the camera.",
    "Show me the picture.",
]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A dialogue, and which pictures its marks are."""

    dialogue: Dialogue
    pictures: list[int]


class PictureDialogues:
    """An endless source of dialogues about given pictures.

    `answers` are what the model is to say of each picture.
    """

    def __init__(self, seed: int, answers: list[str]) -> None:
        self.text = Dialogues(seed)
        self.m = self.text.m
        self.answers = answers

    def draw(self) -> Shown:
        if self.m.chance(TEXT_SHARE):
            return Shown(dialogue=self.text.draw(short=self.m.chance(0.5)), pictures=[])
        x = self.m.random.random()
        if x < 0.60:
            return self.shown([None])
        if x < 0.70:
            return self.shown([self.text._small_talk(), None])
        if x < 0.82:
            return self.shown([None, self.text._small_talk()])
        if x < 0.92:
            return self.shown([None, None])
        return self.by_a_tool()

    def shown(self, turns: list) -> Shown:
        """Turns of text, and turns about a picture where None stands."""
        messages: list[Message] = []
        pictures: list[int] = []
        for turn in turns:
            if turn is not None:
                messages += turn_messages(turn)
                continue
            pictures.append(self.m.random.randrange(len(self.answers)))
            messages += [{"role": "user", "content": self._question()}, self._answer(pictures[-1])]
        functions = [self.text.functions.any()] if self.m.chance(0.06) else []
        dialogue = self.text.finish(messages, functions=functions, thinking=self.m.chance(0.06))
        return Shown(dialogue=dialogue, pictures=pictures)

    def by_a_tool(self) -> Shown:
        """A tool has answered with a picture."""
        m = self.m
        picture = m.random.randrange(len(self.answers))
        function = self.text.functions.bare()
        request = m.choice(TOOL_REQUESTS) if m.chance(0.5) else function.ask(m.casing()).text
        given: list[Message] = [{"role": "tool", "content": MARK}]
        if m.chance(0.6):
            text = BELOW if m.chance(0.7) else m.phrase(4)
            given = [{"role": "tool", "content": text}, {"role": "user", "content": MARK}]
        messages: list[Message] = [
            {"role": "user", "content": request},
            self.text._calling([(function, {})]),
            *given,
            self._answer(picture),
        ]
        # How the model calls is learnt already.
        dialogue = self.text.finish(messages, functions=[function], thinking=False)
        return Shown(dialogue=dialogue, pictures=[picture])

    def _question(self) -> str:
        m = self.m
        if m.chance(0.05):
            return MARK
        question = m.casing()(m.choice(QUESTIONS))
        between = m.choice(["", "", "", "\n", " "])
        return MARK + between + question if m.chance(0.5) else question + between + MARK

    def _answer(self, picture: int) -> Message:
        return {
            "role": "assistant",
            "content": self.answers[picture],
            "reasoning_content": THOUGHT,
        }
