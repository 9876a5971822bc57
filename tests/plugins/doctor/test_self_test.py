"""`gateway doctor --generate`: one line for each promise of an engine, and an exit code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import hookimpl
from gateway.cli import main
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import EngineOutput, EngineRequest, NoConfig
from gateway_doctor.checks.engine_checks import CHECKS, GuaranteeViolated, NotClaimed, Probe
from gateway_scripted import ScriptedEngine

pytestmark = pytest.mark.anyio
TWO = '[models.a]\nengine = "scripted"\n[models.b]\nengine = "scripted"\n[models.c]\nengine = "broken"\n'


class Broken(ScriptedEngine):
    """Breaks the promise that `fault` says."""

    fault = ""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        sofar = ""
        outputs = [output async for output in super().generate(request)]
        for number, output in enumerate(outputs):
            match self.fault:
                case "cumulative":
                    sofar += output.text
                    output.text = sofar
                case "finish twice":
                    output.finish_reason = outputs[-1].finish_reason
                case "one output" if number < len(outputs) - 1:
                    continue
                case "too many":
                    output.token_ids = [*output.token_ids, *output.token_ids]
                case "logprobs" if output.logprobs:
                    output.logprobs = output.logprobs[:-1]
                case "constraint" if request.constraint is not None:
                    output.text = "no"
                case "crash":
                    raise RuntimeError("crashed")
            yield output

    async def check(self, request: EngineRequest) -> None:
        if self.fault != "takes everything":
            await super().check(request)


class Plugin:
    @staticmethod
    @hookimpl
    def gateway_register_engines(register: Any) -> None:
        @asynccontextmanager
        async def open_broken(config: NoConfig, context: EngineContext) -> AsyncIterator[Any]:
            engine = Broken()
            engine.fault = "cumulative"
            yield engine

        register("broken", open_broken, summary="breaks a promise")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)
    monkeypatch.setattr(
        "gateway_doctor.self_test.load_plugins", lambda wanted: load_plugins(wanted, extra=[Plugin])
    )
    (tmp_path / "gateway.toml").write_text(TWO)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["doctor", *arguments])
        return (code, *capsys.readouterr())

    return run


def test_each_promise_has_a_line_and_all_hold(run: Any) -> None:
    code, out, _ = run("--generate", "a")
    assert code == 0
    for check in CHECKS:
        assert f"{check.what:28} ok" in out or f"{check.what:28} not offered: " in out
    assert "a: engine scripted" in out
    assert ", 0 failed, " in out


def test_a_broken_promise_is_told_with_what_was_seen_and_the_exit_code_is_1(run: Any) -> None:
    code, out, _ = run("--generate", "c")
    assert code == 1
    assert "text is the tokens'          failed: text '" in out
    assert "is healthy                   ok" in out


def test_an_engine_s_name_chooses_among_the_configured_models(run: Any) -> None:
    code, out, _ = run("--generate", "--engine", "scripted")
    assert code == 0
    assert "a: engine scripted" in out
    assert "b: engine scripted" in out
    assert "c: engine" not in out
    code, _, err = run("--generate", "--engine", "vllm")
    assert code == 2
    assert "no model of gateway.toml has the engine 'vllm' (they have: broken, scripted)" in err


def test_model_and_engine_without_generate_are_a_mistake(run: Any) -> None:
    code, _, err = run("a")
    assert code == 2
    assert "go with --generate" in err


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("cumulative", "text is the tokens'"),
        ("finish twice", "finish reason, last only"),
        ("one output", "streams"),
        ("too many", "max_tokens"),
        ("logprobs", "logprobs"),
        ("constraint", "constraint regex"),
        ("takes everything", "refuses an empty prompt"),
    ],
)
async def test_every_kind_of_fault_is_found(fault: str, check: str) -> None:
    engine = Broken()
    engine.fault = fault
    [found] = [each for each in CHECKS if each.what == check]
    with pytest.raises(GuaranteeViolated):
        await found.run(Probe(engine))


async def test_what_is_not_offered_is_no_fault() -> None:
    [adapters] = [each for each in CHECKS if each.what == "adapters"]
    with pytest.raises(NotClaimed):
        await adapters.run(Probe(ScriptedEngine()))
