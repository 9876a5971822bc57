"""An engine that answers by a script: deterministic, without a model, through the real renderer and parser."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from gateway.errors import EngineError, EngineUnavailable, InvalidRequest, Unsupported
from gateway.protocols import (
    CallPiece,
    Capability,
    EmbeddingInfo,
    EmbeddingInput,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    ModelInfo,
    NamedTool,
    OutputFormat,
    Piece,
    RawPiece,
    TextPiece,
    TokenLogprob,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.testing.chatml import CHAT_TEMPLATE, last_user_text, write_chatml
from gateway.testing.instances import (
    NoInstanceError,
    minimal_instance,
    minimal_object,
    minimal_text,
)
from gateway.testing.made_up_vectors import made_up_vector
from gateway.testing.scenario import Rule, Scenario
from gateway.testing.script import Script, invent_logprobs, make_outputs, make_script
from gateway.testing.tokenizer import ScriptedTokenizer
from gateway.wire.items import Message

_REMEMBERED: Final = 1000
"""How many past requests are kept for tests to look at."""

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


class ScriptedEngine:
    """Satisfies `gateway.protocols.Engine` with a scenario in place of a model.

    The rule whose `when` occurs last in the decoded prompt answers, as it stands, whatever is forced. Where none
    matches, a forced tool or schema gets a minimal instance, and anything else an echo of the last user text. Answers
    are written in the syntax of the format handed to `speak`. Sampling is ignored but for stops, limits and log
    probabilities.

    `architecture` and `model_type` are what the model claims to be. `recover_after` is how many seconds a crash lasts;
    None is for ever. `clock` gives seconds; `delay_ms` is the pause before each output of rules that say none.
    `dimensions` are those of its made-up vectors, None: it does not embed; without `generates` it does nothing else.
    `adapters` are names of LoRA adapters, which change nothing. Each of `synonyms` has words that share one vector.
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
        adapters: Sequence[str] = (),
        synonyms: Sequence[Sequence[str]] = (),
    ) -> None:
        self.scenario = scenario or Scenario()
        self.requests: deque[EngineRequest] = deque(maxlen=_REMEMBERED)
        """What was generated for, the latest last."""
        self.aborted: deque[str] = deque(maxlen=_REMEMBERED)
        """The request ids of generations that were closed or cancelled before their end."""
        self.running: set[str] = set()
        """The request ids of generations that run now."""
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
        )
        self._capabilities = frozenset[Capability](
            {
                *(_CAPABILITIES if generates else ()),
                *(("adapters",) if adapters else ()),
                *(("embeddings",) if dimensions else ()),
            }
        )
        self._dimensions = dimensions or 0
        self._synonyms = {word.casefold(): each[0].casefold() for each in synonyms for word in each}
        self._max_model_len = max_model_len
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

    def speak(self, output_format: OutputFormat) -> None:
        """Write answers in this format from now on: the one that the gateway reads them with."""
        self._format = output_format

    async def health(self) -> None:
        if self._crashed_at is None:
            return
        if self._recover_after is None or self._clock() < self._crashed_at + self._recover_after:
            raise EngineUnavailable("The scripted engine has crashed, as its scenario says.")
        self._crashed_at = None

    async def check(self, request: EngineRequest) -> None:
        """Raises `InvalidRequest`, `EngineUnavailable`, and the error of a rule that has one, with its own status."""
        await self.health()
        self._answer(request)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        await self.health()
        crashes = self._crashes
        ids, rule, pieces = self._answer(request)
        self.requests.append(request)
        delay = self._delay if rule.delay_ms is None else rule.delay_ms / 1000
        script = self._script(request, len(ids), pieces)
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
            outputs[0].prompt_tokens = len(ids)
            outputs[0].cached_tokens = 0
            if sampling.prompt_logprobs is not None:
                outputs[0].prompt_logprobs = self._prompt_logprobs(ids, sampling.prompt_logprobs)
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
        """Made-up vectors; rules that have an error, a delay or a crash hold for texts too."""
        await self.health()
        crashes, delay = self._crashes, self._delay
        self.running.add(request.request_id)
        whole = False
        try:
            texts = [
                self._text_of(each, request, index) for index, each in enumerate(request.inputs)
            ]
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
            return EmbeddingResult(
                vectors=[
                    made_up_vector(
                        text, self._dimensions, request.dimensions, synonyms=self._synonyms
                    )
                    for text in texts
                ],
                prompt_tokens=sum(map(len, request.inputs)),
            )
        finally:
            self.running.discard(request.request_id)
            if not whole:
                self.aborted.append(request.request_id)

    def _text_of(self, given: EmbeddingInput, request: EmbeddingRequest, index: int) -> str:
        param = "input" if len(request.inputs) == 1 else f"input[{index}]"
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
        """Die now: every running request raises `EngineUnavailable`, and so does whatever comes until the recovery."""
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
        """Let the others go on, for `delay` seconds at least; a crash ends the wait and the request."""
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

    def _answer(self, request: EngineRequest) -> tuple[Sequence[int], Rule, list[Piece]]:
        """The prompt's ids, the rule that holds and what it says. Raises what the request must be refused with."""
        ids = self._prompt_ids(request)
        try:
            prompt = self._tokenizer.decode(ids)
        except ValueError as problem:
            raise InvalidRequest(f"The prompt cannot be read: {problem}.", param="input") from None
        rule = self.scenario.rule_for(prompt)
        if rule is None:
            return ids, Rule(), _unscripted(request, prompt)
        if rule.error is not None:
            raise rule.error.exception()
        return ids, rule, rule.said()

    def _prompt_ids(self, request: EngineRequest) -> Sequence[int]:
        if not isinstance(request.prompt, TokensPrompt):
            raise InvalidRequest("The scripted engine takes prompts as token ids.", param="input")
        ids = request.prompt.token_ids
        if not ids:
            raise InvalidRequest("The prompt is empty.", param="input")
        if len(ids) >= self._max_model_len:
            raise InvalidRequest(
                f"The prompt has {len(ids)} tokens, which leaves no room for an answer in the model's "
                f"{self._max_model_len}.",
                param="input",
                code="context_length_exceeded",
            )
        self._require_adapter(request.adapter)
        return ids

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
        """Nothing comes before the first token, so it has none."""
        tokenizer = self._tokenizer
        rest = [
            invent_logprobs(each, tokenizer.token_bytes(each), tokenizer, alternatives)
            for each in ids[1:]
        ]
        return [None, *rest]


def _wake(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


def _unscripted(request: EngineRequest, prompt: str) -> list[Piece]:
    """The answer where no rule matches."""
    turn = request.turn
    if turn is None:
        if request.constraint is not None:
            return [RawPiece(minimal_text(request.constraint))]
        return [TextPiece(last_user_text(prompt))]
    try:
        if tool := _forced_tool(turn):
            return [CallPiece(tool.name, _minimal_arguments(tool))]
        match turn.text_format.kind:
            case "json_object":
                return [TextPiece("{}")]
            case "json_schema":
                value = minimal_instance(turn.text_format.schema or {})
                return [TextPiece(json.dumps(value, ensure_ascii=False))]
    except NoInstanceError as problem:
        raise Unsupported(
            f"The scripted engine finds no instance of the schema: {problem}."
        ) from None
    said = [item.text for item in turn.items if isinstance(item, Message) and item.role == "user"]
    return [TextPiece(said[-1])] if said and said[-1] else []


def _forced_tool(turn: Turn) -> ToolDefinition | None:
    """The tool that the turn's choice asks for; of several the first."""
    match turn.tool_choice:
        case NamedTool(name):
            return next((tool for tool in turn.tools if tool.name == name), None)
        case "required":
            return turn.tools[0] if turn.tools else None
        case _:
            return None


def _minimal_arguments(tool: ToolDefinition) -> str:
    if tool.kind == "custom":
        text = "" if tool.grammar is None else minimal_text(tool.grammar)
        return json.dumps({"input": text}, ensure_ascii=False)
    return json.dumps(minimal_object(tool.parameters), ensure_ascii=False)
