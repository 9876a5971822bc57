"""Content parts of messages, of tool outputs and of reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from gateway.wire.common import Tagged, Value

ImageDetail: TypeAlias = Literal["low", "high", "auto", "original"]

LOWEST_LOGPROB = -9999.0
"""Represents a probability of zero, since JSON has no infinity. OpenAI and vLLM use the same number."""


# Input from clients.


class PromptCacheBreakpoint(Value, frozen=True, kw_only=True):
    """Marks the end of a reusable prefix. Passed on unchanged."""

    mode: Literal["explicit"] = "explicit"
    ttl: Literal["30m", "12h"] | UnsetType = UNSET


class InputText(Tagged, frozen=True, kw_only=True, tag="input_text"):
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | UnsetType = UNSET


class InputImage(Tagged, frozen=True, kw_only=True, tag="input_image"):
    """An image by URL (also a `data:` URL) or by the id of a file."""

    image_url: str | None = None
    file_id: str | None = None
    detail: ImageDetail = "auto"
    prompt_cache_breakpoint: PromptCacheBreakpoint | UnsetType = UNSET


class InputFile(Tagged, frozen=True, kw_only=True, tag="input_file"):
    """A file as base64 data, by URL, or by id."""

    filename: str | UnsetType = UNSET
    file_data: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    detail: Literal["auto", "low", "high"] | UnsetType = UNSET
    prompt_cache_breakpoint: PromptCacheBreakpoint | UnsetType = UNSET


class EncryptedContent(Tagged, frozen=True, kw_only=True, tag="encrypted_content"):
    """Content that OpenAI's server would encrypt and decrypt. This gateway does not encrypt arguments, so its clients
    send back the text that the model wrote."""

    encrypted_content: str


class AudioData(Value, frozen=True, kw_only=True):
    """Base64 data and its container format."""

    data: str
    format: Literal["mp3", "wav"]


class InputAudio(Tagged, frozen=True, kw_only=True, tag="input_audio"):
    input_audio: AudioData


# Output of models.


class UrlCitation(Tagged, frozen=True, kw_only=True, tag="url_citation"):
    url: str
    title: str = ""
    start_index: int
    end_index: int


class FileCitation(Tagged, frozen=True, kw_only=True, tag="file_citation"):
    file_id: str
    filename: str = ""
    index: int


class FilePath(Tagged, frozen=True, kw_only=True, tag="file_path"):
    file_id: str
    index: int


class ContainerFileCitation(Tagged, frozen=True, kw_only=True, tag="container_file_citation"):
    container_id: str
    file_id: str
    filename: str = ""
    start_index: int
    end_index: int


Annotation: TypeAlias = UrlCitation | FileCitation | FilePath | ContainerFileCitation


class TopLogprob(Value, frozen=True, kw_only=True):
    """One of the most likely tokens at a position; `bytes` is its UTF-8."""

    token: str
    bytes: list[int] = []
    logprob: float


class Logprob(Value, frozen=True, kw_only=True):
    """The token at a position, with its most likely alternatives."""

    token: str
    bytes: list[int] = []
    logprob: float
    top_logprobs: list[TopLogprob] = []


class OutputText(Tagged, frozen=True, kw_only=True, tag="output_text"):
    """Text of an assistant message. `annotations` and `logprobs` are always sent; `[]` if there are none."""

    text: str
    annotations: list[Annotation] = []
    logprobs: list[Logprob] = []


class Refusal(Tagged, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class ReasoningText(Tagged, frozen=True, kw_only=True, tag="reasoning_text"):
    text: str


class SummaryText(Tagged, frozen=True, kw_only=True, tag="summary_text"):
    text: str


class ComputerScreenshot(Tagged, frozen=True, kw_only=True, tag="computer_screenshot"):
    image_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    detail: ImageDetail | UnsetType = UNSET


MessageContent: TypeAlias = InputText | InputImage | InputFile | InputAudio | OutputText | Refusal
ToolOutputContent: TypeAlias = InputText | InputImage | InputFile | EncryptedContent
"""Parts of a function's or custom tool's output. Models read encrypted content as text; see `gateway.answers.responses.readable_items`."""
AgentContent: TypeAlias = InputText | InputImage | EncryptedContent
"""Parts of a message from one agent to another."""
AnyContent: TypeAlias = MessageContent | EncryptedContent
"""Parts of messages and of tool outputs."""
OutputPart: TypeAlias = OutputText | Refusal | ReasoningText
"""Parts that have `response.content_part.added` and `.done` events."""


TEXTS = (InputText, OutputText)
"""The types of text parts."""


def text_of(parts: str | Sequence[AnyContent]) -> str:
    """The concatenated text of a message's or a tool output's parts."""
    if isinstance(parts, str):
        return parts
    if len(parts) == 1 and isinstance(only := parts[0], TEXTS):
        return only.text
    return "".join([part.text for part in parts if isinstance(part, TEXTS)])
