"""`LLM`, and the worker behind it: one thread that steps through the running requests in turn."""

from __future__ import annotations

import json
import threading
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorrt_llm.model import Model, best
from tensorrt_llm.result import EngineDeadError, RequestError, RequestOutput, Step
from tensorrt_llm.sampling_params import SamplingParams
from tensorrt_llm.tokenizer import TransformersTokenizer

ARGUMENTS = [
    "model",
    "tokenizer",
    "tokenizer_mode",
    "skip_tokenizer_init",
    "trust_remote_code",
    "tensor_parallel_size",
    "dtype",
    "revision",
    "tokenizer_revision",
    "pipeline_parallel_size",
    "moe_expert_parallel_size",
    "enable_attention_dp",
    "enable_lora",
    "lora_config",
    "kv_cache_config",
    "enable_chunked_prefill",
    "guided_decoding_backend",
    "speculative_config",
    "max_batch_size",
    "max_num_tokens",
    "max_seq_len",
    "stream_interval",
    "num_postprocess_workers",
    "reasoning_parser",
    "otlp_traces_endpoint",
    "disable_overlap_scheduler",
    "scheduler_config",
    "cuda_graph_config",
    "attn_backend",
]
SLOTS = 8
"""How many requests run at once: as the batch size, if none is set."""


class TorchLlmArgs:
    model_fields = dict.fromkeys(ARGUMENTS)


@dataclass
class Running:
    """A request in the worker."""

    result: RequestOutput
    prompt: list[int]
    params: Any
    salt: str | None
    grammar: Any = None
    cached: int = 0
    made: list[int] = field(default_factory=list)
    pending: Step | None = None


@dataclass
class PreprocessedInputs:
    prompt_token_ids: list[int]
    query_token_ids: list[int] | None = None
    multimodal_params: Any = None
    """Here: the tokens as the model sees them, with negative numbers for what is in images."""
    encoder_input_token_ids: list[int] | None = None


class InputProcessor:
    """As of a model that sees: a placeholder becomes one token for every 16 x 16 pixels."""

    supports_token_id_mm_expansion = True

    def __init__(self, config: Any, tokenizer: TransformersTokenizer) -> None:
        self._image: int = config.image_token_id
        self._tokenizer = tokenizer.tokenizer

    def get_num_tokens_per_image(self, *, image: Any, **kwargs: Any) -> int:
        if min(image.width, image.height) < 16:
            raise ValueError("the image has no patch")
        return int(image.width // 16 * (image.height // 16))

    def expand(self, inputs: dict[str, Any]) -> PreprocessedInputs:
        ids = inputs["prompt_token_ids"]
        if not self.supports_token_id_mm_expansion:
            ids = self._tokenizer.encode(
                self._tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False)
            )
        images = iter(inputs["multi_modal_data"]["image"])
        made: list[int] = []
        seen: list[int] = []
        for token in ids:
            if token != self._image:
                made.append(token)
                seen.append(token)
                continue
            image = next(images)
            count = self.get_num_tokens_per_image(image=image)
            made += [token] * count
            seen += [-1 - zlib.crc32(image.tobytes())] * count
        return PreprocessedInputs(made, multimodal_params=seen)


class LLM:
    opened: list[LLM] = []
    """Those that are open: for tests."""

    def __init__(
        self,
        model: str | Path,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        backend = kwargs.pop("backend", "pytorch")
        for key in kwargs:
            if key not in ARGUMENTS:
                raise ValueError(f"LLM got invalid argument: {key}")
        folder = Path(model)
        if not (folder / "config.json").exists():
            raise RuntimeError(f"{model} is no model")
        values = {**dict.fromkeys(ARGUMENTS), "max_num_tokens": 8192, "backend": backend, **kwargs}
        values["tensor_parallel_size"] = tensor_parallel_size
        self.args = SimpleNamespace(**values)
        config = json.loads((folder / "config.json").read_text())
        self._hf_model_config = SimpleNamespace(**config)
        self._tokenizer = TransformersTokenizer(folder)
        self._generation_config = _generation_config(folder)
        if "vision_config" in config:
            self.input_processor = InputProcessor(self._hf_model_config, self._tokenizer)
        self.preprocessed: list[dict[str, Any]] = []
        """The prompts with images, for tests."""
        ends = [self.tokenizer.tokenizer.eos_token_id, *self._generation_config.eos_token_id]
        self.executor = Executor(
            Model(self.tokenizer.tokenizer, ends, config["vocab_size"]), self.args
        )
        self._executor: Executor | None = self.executor
        self.requests: list[dict[str, Any]] = []
        """What was asked, for tests."""
        LLM.opened.append(self)

    @property
    def tokenizer(self) -> TransformersTokenizer:
        return self._tokenizer

    def generate_async(
        self,
        inputs: Any,
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        trace_headers: Any = None,
        _postproc_params: Any = None,
        scheduling_params: Any = None,
        conversation_params: Any = None,
        cache_salt: str | None = None,
        priority: float = 0.5,
    ) -> RequestOutput:
        if self._executor is None or self._executor.dead is not None:
            raise RuntimeError("LLM is shutting down")
        params = sampling_params or SamplingParams()
        params.set_up(self.tokenizer.tokenizer, self._generation_config)
        seen = isinstance(inputs, PreprocessedInputs)
        prompt = inputs.prompt_token_ids if seen else inputs["prompt_token_ids"]
        if len(prompt) > self.args.max_num_tokens and not self.args.enable_chunked_prefill:
            raise RequestError(
                f"The sum of prompt length ({len(prompt)}) should not exceed max_num_tokens"
            )
        if not 0.0 <= priority <= 1.0:
            raise ValueError(f"priority must be a float in [0.0, 1.0], got {priority}")
        assert streaming
        self.requests.append(
            {
                "prompt": prompt,
                "sampling_params": params,
                "lora_request": lora_request,
                "cache_salt": cache_salt,
                "priority": priority,
                "trace_headers": trace_headers,
                "scheduling_params": scheduling_params,
                "conversation_params": conversation_params,
            }
        )
        if seen:
            prompt = inputs.multimodal_params
        return self._executor.submit(prompt, params, cache_salt)

    def preprocess(
        self, inputs: Any, sampling_params: Any = None, disaggregated_params: Any = None
    ) -> PreprocessedInputs:
        assert threading.current_thread() is not threading.main_thread(), "it takes long"
        self.preprocessed.append(inputs)
        return self.input_processor.expand(inputs)

    def _check_health(self) -> bool:
        return self._executor is not None and self._executor.dead is None

    def shutdown(self) -> None:
        if self._executor is not None:
            self._executor.stop()
            self._executor = None
            LLM.opened.remove(self)


class Executor:
    def __init__(self, model: Model, args: Any) -> None:
        self.dead: Exception | None = None
        self._fatal_error: Exception | None = None
        self._model = model
        self._slots = args.max_batch_size or SLOTS
        self._interval = args.stream_interval or 1
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._aborted: set[int] = set()
        self._seen: set[tuple[str | None, tuple[int, ...]]] = set()
        self._number = 0
        self._changed = threading.Condition()
        self._stopped = False
        self.frozen = threading.Event()
        """While it is set, nothing is generated."""
        self._thread = threading.Thread(target=self._work, name="stand-in", daemon=True)
        self._thread.start()

    def idle(self, seconds: float) -> bool:
        """Whether, within that time, nothing runs or waits any more."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._running or self._waiting), seconds)

    def submit(self, prompt: list[int], params: SamplingParams, salt: str | None) -> RequestOutput:
        self._number += 1
        result = RequestOutput(self._number, self, params)
        with self._changed:
            self._waiting.append(Running(result, prompt, params, salt))
            self._changed.notify_all()
        return result

    def abort_request(self, number: int) -> None:
        with self._changed:
            self._aborted.add(number)
            self._changed.notify_all()

    def die(self, error: Exception, *, tell: bool) -> None:
        """As if its workers had died. `tell`: requests hear of it, which they do not in all versions."""
        with self._changed:
            self.dead = error
            self._fatal_error = error if tell else None
            running = [*self._running, *self._waiting]
            self._running, self._stopped = [], True
            self._waiting.clear()
            self._changed.notify_all()
        if tell:
            for each in running:
                each.result.put(Step([], [], error=EngineDeadError(str(error))))

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._waiting or self._running)
                if self._stopped:
                    return
                self._leave_out_aborted()
                while self._waiting and len(self._running) < self._slots:
                    self._running.append(self._waiting.popleft())
                now = list(self._running)
            if self.frozen.is_set():
                self.frozen.wait(0.01)
                threading.Event().wait(0.01)
                continue
            for each in now:
                if self._step(each):
                    with self._changed:
                        if each in self._running:
                            self._running.remove(each)
                            self._changed.notify_all()

    def _leave_out_aborted(self) -> None:
        for queue in (self._running, self._waiting):
            for each in [each for each in queue if each.result.number in self._aborted]:
                queue.remove(each)
                each.result.put(Step([], [], finish_reason="cancelled"))
        self._aborted.clear()
        self._changed.notify_all()

    def _step(self, each: Running) -> bool:
        """One token; whether it was the last."""
        params = each.params
        first = not each.made and each.pending is None
        if first:
            try:
                each.grammar = self._model.grammar(params.guided_decoding)
            except Exception as error:
                each.result.put(Step([], [], error=RequestError(f"guided decoding: {error}")))
                return True
            each.cached = self._cache(each)
        token_id, raw = self._model.next_token(
            [*each.prompt, *each.made], each.made, params, each.grammar
        )
        if each.grammar is not None:
            each.grammar.accept(token_id)
        each.made.append(token_id)
        step = each.pending or Step([], [], cached_tokens=each.cached)
        if first and params.prompt_logprobs is not None:
            step.prompt_logprobs = self._of_prompt(each)
        each.pending = None
        step.token_ids.append(token_id)
        if params.logprobs is not None:
            step.logprobs.append(best(raw, token_id, params.logprobs))
        if token_id == params.end_id and not params.ignore_eos:
            step.finish_reason = "stop"
        elif token_id in (params.stop_token_ids or ()):
            step.finish_reason, step.stop_reason = "stop", token_id
        elif len(each.made) >= params.max_tokens:
            step.finish_reason = "length"
        if step.finish_reason is None and len(step.token_ids) < self._interval:
            each.pending = step
            return False
        each.result.put(step)
        return step.finish_reason is not None

    def _cache(self, each: Running) -> int:
        """How much of the prompt is known, in blocks of four tokens."""
        known = 0
        for end in range(4, len(each.prompt), 4):
            key = (each.salt, tuple(each.prompt[:end]))
            if key in self._seen and known == end - 4:
                known = end
            self._seen.add(key)
        return known

    def _of_prompt(self, each: Running) -> list[Any]:
        """From the second token to the first that was generated; what was cached is left out, as in the real one."""
        tokens = [*each.prompt, each.made[0]]
        return [
            best(
                self._model.next_token(tokens[:place], [], each.params, None)[1],
                tokens[place],
                each.params.prompt_logprobs,
            )
            for place in range(1 + each.cached, len(tokens))
        ]


def _generation_config(folder: Path) -> Any:
    file = folder / "generation_config.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    ends = told.get("eos_token_id", [])
    return SimpleNamespace(
        eos_token_id=[ends] if isinstance(ends, int) else ends, to_diff_dict=lambda: told
    )
