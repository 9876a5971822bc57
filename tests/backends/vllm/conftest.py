"""One vLLM engine for all tests here, and the loop that it lives on."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, EngineOutput, EngineRequest, Sampling, TokensPrompt
from gateway_vllm import VllmConfig, open_engine

T = TypeVar("T")
MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
MAX_MODEL_LEN = 1024
CPU = VllmConfig(
    dtype="bfloat16",
    max_num_seqs=16,
    enforce_eager=True,
    scheduling_policy="priority",
    seed=0,
    # Noise would fill the context with white space.
    max_json_whitespace=2,
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


_REQUEST = {field.name for field in msgspec.structs.fields(EngineRequest)}


class Served:
    """An open engine on a loop of its own, in a thread: it outlives the loops of single tests."""

    def __init__(self, config: VllmConfig, context: EngineContext) -> None:
        uvloop = pytest.importorskip("uvloop")
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._manager: AbstractAsyncContextManager[Engine] = open_engine(config, context)
        try:
            self.engine: Any = self.run(self._manager.__aenter__(), timeout=180)
        except BaseException:
            self._stop()
            raise

    def run(self, work: Coroutine[Any, Any, T], *, timeout: float = 60) -> T:
        """Run `work` on the engine's loop; what it raises is raised here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def ask(self, prompt: str = "hello", **settings: Any) -> EngineRequest:
        """A request of a user's message in the model's own format; `settings` are its own and its sampling's."""
        text = (
            f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        return self.ask_tokens(self.engine.tokenizer.encode(text), **settings)

    def ask_tokens(self, token_ids: list[int], **settings: Any) -> EngineRequest:
        own = {name: settings.pop(name) for name in list(settings) if name in _REQUEST}
        sampling = Sampling(**{"max_tokens": 60, "temperature": 0.0, **settings})
        prompt = TokensPrompt(token_ids=token_ids)
        return EngineRequest(request_id="test", prompt=prompt, sampling=sampling, **own)

    def generate(self, request: EngineRequest) -> list[EngineOutput]:
        """All outputs."""

        async def collect() -> list[EngineOutput]:
            stream: AsyncGenerator[EngineOutput, None]
            async with aclosing(self.engine.generate(request)) as stream:
                return [output async for output in stream]

        return self.run(collect())

    def check(self, request: EngineRequest) -> None:
        self.run(self.engine.check(request))

    def close(self) -> None:
        """Close the engine, once."""
        if self._loop.is_closed():
            return
        try:
            self.run(self._manager.__aexit__(None, None, None))
        finally:
            self._stop()
            gc.collect()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM leaves contexts of ZeroMQ's to the garbage collector, which may come in any test here."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"))


def serve(config: VllmConfig = CPU, path: Path = MODEL) -> Served:
    """An engine with the tiny model; skips the test where vLLM is not installed."""
    pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)
    os.environ.update(ENVIRONMENT)
    context = EngineContext(name="tiny", path=str(path), max_model_len=MAX_MODEL_LEN)
    with warnings.catch_warnings():
        # While they are imported and started, vLLM, torch and transformers warn about each other.
        warnings.simplefilter("ignore")
        return Served(config, context)


@pytest.fixture(scope="session")
def cpu_environment() -> None:
    """What vLLM reads from the environment, for a small model on the CPU."""
    os.environ.update(ENVIRONMENT)


@pytest.fixture(scope="session")
def served(noise: Path) -> Iterator[Served]:
    opened = serve(msgspec.structs.replace(CPU, lora_modules={"noise": str(noise)}))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def seeing(seeing_model: Path) -> Iterator[Served]:
    """The tiny model that sees."""
    opened = serve(path=seeing_model)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def embedder(noise: Path) -> Iterator[Served]:
    """The tiny model as one that embeds."""
    opened = serve(
        msgspec.structs.replace(
            CPU,
            task="embed",
            pooling="mean",
            matryoshka=True,
            lora_modules={"noise": str(noise)},
            lora_loading="first_use",
        )
    )
    yield opened
    opened.close()


@pytest.fixture
def start_engine() -> Iterator[Callable[..., Served]]:
    """Starts further engines, for tests that end them; what such a test leaves open is closed."""
    opened: list[Served] = []

    def start(config: VllmConfig = CPU, path: Path = MODEL) -> Served:
        opened.append(serve(config, path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Sets the environment for a server in a process of its own; gives the model's path as `model`."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return {"model": str(MODEL)}
