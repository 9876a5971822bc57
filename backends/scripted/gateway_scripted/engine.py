"""A deterministic engine that answers from a script, without a model, using the real renderer and parser."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial
from operator import mul
from pathlib import Path
from typing import Final, Literal

import msgspec

from gateway.sdk import (
    CallPiece,
    Capability,
    EmbeddingInfo,
    EmbeddingInput,
    EmbeddingRequest,
    EmbeddingResult,
    EngineError,
    EngineOutput,
    EngineRequest,
    EngineUnavailable,
    InvalidRequest,
    MediaKind,
    ModelInfo,
    NamedTool,
    OutputFormat,
    Piece,
    RawPiece,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
    TextPiece,
    TokenLogprob,
    TokensPrompt,
    ToolDefinition,
    Turn,
    Unsupported,
)
from gateway.sdk.constraints import JsonSchema
from gateway.sdk.processes import ProcessPool
from gateway.sdk.wire import Message, threaded_if_large
from gateway_scripted.chatml import CHAT_TEMPLATE, last_user_text, write_chatml
from gateway_scripted.instances import NoInstanceError, minimal_object_text, minimal_text
from gateway_scripted.made_apart import made
from gateway_scripted.made_up_vectors import made_up_vector
from gateway_scripted.scenario import Rule, Scenario
from gateway_scripted.script import Script, invent_logprobs, make_outputs, make_script
from gateway_scripted.shown_media import prompt_length, text_of
from gateway_scripted.tokenizer import ScriptedTokenizer

_TOKEN: Final = 64
"""Bytes that are read in about the time that a token's log probabilities take."""
_REMEMBERED: Final = 1000
"""Number of past requests kept for tests."""

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    {
        "tokens",
        "logprobs",
        "prompt_logprobs",
        "json_schema",
        "json_object",
        "regex",
        "structure",
        "triggered",
    }
)


_SEES: Final[dict[MediaKind, Capability]] = {"image": "images", "audio": "audio"}


class ScriptedEngine:
    """Implements `gateway.sdk.Engine` with a scenario in place of a model.

    The rule whose `when` occurs last in the decoded prompt determines the answer, verbatim, even if a tool or format is
    forced. If no rule matches, a forced tool or schema gets a minimal instance, and otherwise the last user text is
    repeated. Answers are written in the syntax of the format passed to `use_format`. Sampling parameters are ignored except
    stops, limits and log probabilities.

    `architecture` and `model_type` are the model's reported metadata. `recover_after` is the duration of a crash in
    seconds; None means forever. `clock` returns seconds. `delay_ms` is the default pause before each output.
    `dimensions` is the length of its generated vectors; None if it does not embed. Without `generates` it only embeds,
    or with `reranks` scores pairs of texts by the words that they share.
    `adapters` are names of LoRA adapters, which have no effect. The words in each of `synonyms` share one vector.
    `media` are the kinds that it sees: each is described in the prompt by its size and hash, where it stands
    (`[image 4x3 5f2c61a0]`). `placeholders` is `ModelInfo.placeholders`. Texts for patterns are sought in a process of `pool`, by default in
    this one: whether a text matches a pattern may take any time.
    """

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        name: str = "scripted",
        architecture: str | None = None,
        model_type: str | None = None,
        path: str | None = None,
        max_model_len: int = 131_072,
        tokenizer: ScriptedTokenizer | None = None,
        delay_ms: float = 0,
        recover_after: float | None = 1.0,
        clock: Callable[[], float] = time.monotonic,
        dimensions: int | None = 64,
        generates: bool = True,
        reranks: bool = False,
        adapters: Sequence[str] = (),
        synonyms: Sequence[Sequence[str]] = (),
        media: Collection[MediaKind] = (),
        placeholders: Literal["template", "none"] = "none",
        pool: ProcessPool | None = None,
    ) -> None:
        self.scenario = scenario or Scenario()
        self.requests: deque[EngineRequest] = deque(maxlen=_REMEMBERED)
        """The generated requests, the latest one last."""
        self.aborted: deque[str] = deque(maxlen=_REMEMBERED)
        """The request ids of generations that were closed or cancelled before their end."""
        self.running: set[str] = set()
        """The request ids of running generations."""
        self._tokenizer = tokenizer or ScriptedTokenizer()
        eos = (self._tokenizer.id_of("<|im_end|>"), self._tokenizer.id_of("<|endoftext|>"))
        self._info = ModelInfo(
            name=name,
            engine="scripted",
            architecture=architecture,
            model_type=model_type,
            path=path,
            max_model_len=max_model_len,
            chat_template=CHAT_TEMPLATE,
            eos_token="<|im_end|>",  # noqa: S106 (not a password)
            eos_token_ids=eos,
            description="Answers by a script, without a model",
            adapters=tuple(adapters),
            placeholders=placeholders,
        )
        self._capabilities = frozenset[Capability](
            {
                *(_CAPABILITIES if generates else ()),
                *(("adapters",) if adapters else ()),
                *(("images",) if generates and "image" in media else ()),
                *(("audio",) if generates and "audio" in media else ()),
                *(("embeddings",) if dimensions else ()),
                *(("rerank",) if reranks else ()),
            }
        )
        self._dimensions = dimensions or 0
        self._synonyms = {word.casefold(): each[0].casefold() for each in synonyms for word in each}
        self._max_model_len = max_model_len
        self._pool = pool
        self._format: OutputFormat | None = None
        self._delay = delay_ms / 1000
        self._recover_after = recover_after
        self._clock = clock
        self._crashed_at: float | None = None
        self._crashes = 0
        self._pauses: set[asyncio.Future[None]] = set()

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @property
    def tokenizer(self) -> ScriptedTokenizer:
        return self._tokenizer

    def use_format(self, output_format: OutputFormat) -> None:
        """Write answers in this format, which the gateway parses them with."""
        self._format = output_format

    async def load_adapter(self, name: str, path: str) -> None:
        """Serve an adapter, which has no effect. Raises `InvalidRequest` if there is nothing at `path`."""
        if not await asyncio.to_thread(Path(path).exists):
            raise InvalidRequest(f"There is no adapter at {path!r}.", param="lora_path")
        self._serve_adapters((*self._info.adapters, name))

    async def unload_adapter(self, name: str) -> None:
        self._serve_adapters(tuple(each for each in self._info.adapters if each != name))

    def _serve_adapters(self, names: tuple[str, ...]) -> None:
        self._info = msgspec.structs.replace(self._info, adapters=names)
        self._capabilities = self._capabilities - {"adapters"} | (
            {"adapters"} if names else frozenset()
        )

    async def health(self) -> None:
        if self._crashed_at is None:
            return
        if self._recover_after is None or self._clock() < self._crashed_at + self._recover_after:
            raise EngineUnavailable("The scripted engine has crashed, as its scenario says.")
        self._crashed_at = None

    async def check(self, request: EngineRequest) -> None:
        """Raises `InvalidRequest`, `EngineUnavailable`, or the error of a rule, with its own status."""
        await self.health()
        await self._answer(request)

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of a prompt; an image takes four tokens, and one for each 1024 pixels."""
        self._require_media(prompt)
        return prompt_length(prompt, self._info.placeholders)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        await self.health()
        crashes = self._crashes
        prompt, rule, pieces = await self._answer(request)
        length = prompt_length(prompt, self._info.placeholders)
        self.requests.append(request)
        delay = self._delay if rule.delay_ms is None else rule.delay_ms / 1000
        script = self._script(request, length, pieces)
        fails = False
        if script.finish is None:
            if rule.finish == "error" or rule.finish == "crash":
                fails = True
            else:
                script = Script(script.tokens, rule.finish)
        sampling = request.sampling
        outputs = make_outputs(
            script, self._tokenizer, chunk=rule.chunk, logprobs=sampling.logprobs
        )
        if outputs:
            outputs[0].prompt_tokens = length
            outputs[0].cached_tokens = 0
            if sampling.prompt_logprobs is not None:
                outputs[0].prompt_logprobs = await threaded_if_large(
                    _TOKEN * length,
                    partial(self._prompt_logprobs, prompt.token_ids, sampling.prompt_logprobs),
                )
        whole = False
        self.running.add(request.request_id)
        try:
            for output in outputs:
                await self._pause(delay, crashes)
                whole = output.finish_reason is not None
                yield output
            if fails:
                whole = True
                await self._pause(delay, crashes)
                self._fail(rule)
        except EngineUnavailable:
            whole = True
            raise
        finally:
            self.running.discard(request.request_id)
            if not whole:
                self.aborted.append(request.request_id)

    @property
    def embedding(self) -> EmbeddingInfo:
        return EmbeddingInfo(
            dimensions=self._dimensions, shorter=True, max_input_tokens=self._max_model_len
        )

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Generated vectors. The errors, delays and crashes of rules apply to texts too."""
        await self.health()
        texts = [self._text_of(each, request, index) for index, each in enumerate(request.inputs)]
        await self._act(texts, request.request_id)
        return EmbeddingResult(
            vectors=[
                made_up_vector(text, self._dimensions, request.dimensions, synonyms=self._synonyms)
                for text in texts
            ],
            prompt_tokens=sum(map(len, request.inputs)),
        )

    @property
    def scoring(self) -> ScoringInfo:
        return ScoringInfo(max_input_tokens=self._max_model_len)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """The cosine of the texts' generated vectors. The errors, delays and crashes of rules apply to documents."""
        await self.health()
        self._require_adapter(request.adapter)
        lengths = [
            sum(len(self._tokenizer.encode(text)) for text in pair) for pair in request.pairs
        ]
        for index, length in enumerate(lengths):
            if length > self._max_model_len:
                raise InvalidRequest(
                    f"The pair has {length} tokens, and the model scores {self._max_model_len} at most.",
                    param=("pairs", index),
                    code="context_length_exceeded",
                )
        await self._act([document for _, document in request.pairs], request.request_id)
        return ScoreResult(
            scores=[self._likeness(*pair) for pair in request.pairs], prompt_tokens=sum(lengths)
        )

    def _likeness(self, one: str, other: str) -> float:
        vectors = (made_up_vector(each, 64, synonyms=self._synonyms) for each in (one, other))
        return float(sum(map(mul, *vectors)))

    async def _act(self, texts: Sequence[str], request_id: str) -> None:
        """Do what the rules say for `texts`: wait, fail or crash."""
        crashes, delay = self._crashes, self._delay
        self.running.add(request_id)
        whole = False
        try:
            for text in texts:
                rule = self.scenario.rule_for(text) or Rule()
                if rule.error is not None:
                    whole = True
                    raise rule.error.exception()
                await self._pause(delay if rule.delay_ms is None else rule.delay_ms / 1000, crashes)
                if rule.finish in ("error", "crash"):
                    whole = True
                    self._fail(rule)
            whole = True
        finally:
            self.running.discard(request_id)
            if not whole:
                self.aborted.append(request_id)

    def _text_of(self, given: EmbeddingInput, request: EmbeddingRequest, index: int) -> str:
        param = ("input", index)
        self._require_adapter(request.adapter)
        if isinstance(given, str):
            raise InvalidRequest("The scripted engine takes token ids.", param=param)
        if len(given) > self._max_model_len:
            raise InvalidRequest(
                f"The input has {len(given)} tokens, and the model embeds {self._max_model_len} at most.",
                param=param,
                code="context_length_exceeded",
            )
        try:
            return self._tokenizer.decode(given)
        except ValueError as problem:
            raise InvalidRequest(f"The input cannot be read: {problem}.", param=param) from None

    def crash(self) -> None:
        """Crash now: every running request, and every new one until the recovery, raises `EngineUnavailable`."""
        self._crashed_at = self._clock()
        self._crashes += 1
        for pause in self._pauses:
            if not pause.done():
                pause.set_result(None)

    def _fail(self, rule: Rule) -> None:
        if rule.finish == "crash":
            self.crash()
            raise EngineUnavailable("The scripted engine has crashed, as its scenario says.")
        raise EngineError("The scripted engine failed on this request, as its scenario says.")

    async def _pause(self, delay: float, crashes: int) -> None:
        """Let other tasks run, for at least `delay` seconds. A crash ends the wait and the request."""
        if delay > 0:
            loop = asyncio.get_running_loop()
            pause: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(delay, _wake, pause)
            self._pauses.add(pause)
            try:
                await pause
            finally:
                timer.cancel()
                self._pauses.discard(pause)
        else:
            await asyncio.sleep(0)
        if self._crashes != crashes:
            raise EngineUnavailable("The scripted engine crashed while it answered this request.")

    async def _answer(self, request: EngineRequest) -> tuple[TokensPrompt, Rule, list[Piece]]:
        """The prompt, the rule that applies and its pieces. Raises the error with which the request is rejected."""
        given = self._checked_prompt(request)
        try:
            prompt = text_of(given, self._tokenizer, self._info.placeholders)
        except ValueError as problem:
            raise InvalidRequest(f"The prompt cannot be read: {problem}.", param="input") from None
        rule = self.scenario.rule_for(prompt)
        if rule is None:
            return given, Rule(), await _unscripted(request, prompt, self._pool)
        if rule.error is not None:
            raise rule.error.exception()
        return given, rule, rule.all_pieces()

    def _checked_prompt(self, request: EngineRequest) -> TokensPrompt:
        if not isinstance(request.prompt, TokensPrompt):
            raise InvalidRequest("The scripted engine takes prompts as token ids.", param="input")
        prompt = request.prompt
        if not prompt.token_ids:
            raise InvalidRequest("The prompt is empty.", param="input")
        self._require_media(prompt)
        length = prompt_length(prompt, self._info.placeholders)
        if length >= self._max_model_len:
            raise InvalidRequest(
                f"The prompt has {length} tokens, which leaves no room for an answer in the model's "
                f"{self._max_model_len}.",
                param="input",
                code="context_length_exceeded",
            )
        self._require_adapter(request.adapter)
        return prompt

    def _require_media(self, prompt: TokensPrompt) -> None:
        for placed in prompt.media:
            if (name := _SEES[placed.media.kind]) not in self._capabilities:
                raise InvalidRequest(f"This model takes no {name}.", param=placed.param)

    def _require_adapter(self, name: str | None) -> None:
        if name is not None and name not in self._info.adapters:
            raise InvalidRequest(f"There is no adapter {name!r}.", param="model")

    def _script(self, request: EngineRequest, used: int, pieces: Sequence[Piece]) -> Script:
        """`used`: the prompt's length, in tokens."""
        write = write_chatml if self._format is None else self._format.write
        room = self._max_model_len - used
        wanted = request.sampling.max_tokens
        return make_script(
            self._tokenizer.encode(write(pieces, tail=request.tail)),
            request.sampling,
            self._tokenizer,
            limit=room if wanted is None else min(wanted, room),
            eos_token_ids=self._info.eos_token_ids,
        )

    def _prompt_logprobs(self, ids: Sequence[int], alternatives: int) -> list[TokenLogprob | None]:
        """The first token has none."""
        tokenizer = self._tokenizer
        rest = [
            invent_logprobs(each, tokenizer.token_bytes(each), tokenizer, alternatives)
            for each in ids[1:]
        ]
        return [None, *rest]


def _wake(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


async def _unscripted(request: EngineRequest, prompt: str, pool: ProcessPool | None) -> list[Piece]:
    """The answer if no rule matches."""
    turn = request.turn
    try:
        if turn is None:
            if request.constraint is not None:
                return [RawPiece(await made(minimal_text, request.constraint, pool))]
            return [TextPiece(last_user_text(prompt))]
        if tool := _forced_tool(turn):
            return [CallPiece(tool.name, await _minimal_arguments(tool, pool))]
        match turn.text_format.kind:
            case "json_object":
                return [TextPiece("{}")]
            case "json_schema":
                schema = JsonSchema(turn.text_format.schema or {})
                return [TextPiece(await made(minimal_text, schema, pool))]
    except NoInstanceError as problem:
        raise Unsupported(
            f"The scripted engine finds no instance of the schema: {problem}."
        ) from None
    if isinstance(request.prompt, TokensPrompt) and request.prompt.media:
        return [TextPiece(last_user_text(prompt))]
    said = [item.text for item in turn.items if isinstance(item, Message) and item.role == "user"]
    return [TextPiece(said[-1])] if said and said[-1] else []


def _forced_tool(turn: Turn) -> ToolDefinition | None:
    """The tool that the turn's choice requires; of several, the first."""
    match turn.tool_choice:
        case NamedTool(name):
            return next((tool for tool in turn.tools if tool.name == name), None)
        case "required":
            return turn.tools[0] if turn.tools else None
        case _:
            return None


async def _minimal_arguments(tool: ToolDefinition, pool: ProcessPool | None) -> str:
    if tool.kind == "custom":
        text = "" if tool.grammar is None else await made(minimal_text, tool.grammar, pool)
        return json.dumps({"input": text}, ensure_ascii=False)
    return await made(minimal_object_text, JsonSchema(tool.parameters or {}), pool)
