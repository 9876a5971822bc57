"""Tools that the gateway runs, by the names that client libraries have for OpenAI's: web search and code interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway_testing.server import RunningGateway, run_gateway

pytest.importorskip("gateway_browser", reason="the plugin browser is not installed")
pytest.importorskip("gateway_python", reason="the plugin python is not installed")

RULES = [
    {
        "when": "how high is the tower",
        "pieces": [
            {"reasoning": "I look it up."},
            {"call": {"name": "web_search", "arguments": {"query": "tower height"}}},
        ],
    },
    {
        "when": "Search results for: tower height",
        "pieces": [{"text": "It is 312 metres high【0†L1】."}],
    },
    {
        "when": "please compute",
        "pieces": [
            {"call": {"name": "python", "arguments": {"code": "print('product', 6 * 7)"}}},
        ],
    },
    {"when": "product 42", "pieces": [{"text": "It is 42."}]},
    {"when": "and once more", "pieces": [{"text": "As I said."}]},
    # Claude Code: its model calls its tool, which asks the gateway for a search.
    {
        "when": "zebra, search",
        "pieces": [{"call": {"name": "WebSearch", "arguments": {"query": "tower height"}}}],
    },
    {
        "when": "Perform a web search for the query: tower height",
        "pieces": [{"call": {"name": "web_search", "arguments": {"query": "tower height"}}}],
    },
    {"when": "MUST include the sources", "pieces": [{"text": "It has its sources."}]},
]
ASKED = [("how high is the tower", "It is 312 metres high"), ("please compute", "It is 42.")]


@pytest.fixture(scope="module")
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that searches a folder of pages, and runs Python where this machine can keep it apart."""
    folder = tmp_path_factory.mktemp("hosting")
    pages = folder / "pages"
    pages.mkdir()
    (pages / "tower.html").write_text(
        "<title>Tower facts</title><h1>The tower's height</h1><p>The tower is 312 metres high.</p>"
    )
    config: dict[str, Any] = {
        "models": {"demo": {"engine": "scripted", "aliases": ["gpt-5.5"], "scripted": {"rules": RULES}}},
        "tools": {
            "browser": {"provider": "local", "local": {"path": str(pages)}},
            "python": {},
        },
    }  # fmt: skip
    context = run_gateway(config, folder)
    try:
        running = context.__enter__()
    except ConfigurationError as error:
        if "cannot keep code apart" not in str(error):
            raise
        pytest.skip(str(error))
    yield running
    context.__exit__(None, None, None)


@pytest.mark.anyio
@pytest.mark.parametrize(("prompt", "said"), ASKED)
@pytest.mark.parametrize("streamed", [False, True])
async def test_openai_agents(
    hosting: RunningGateway, prompt: str, said: str, streamed: bool
) -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    agents.set_tracing_disabled(True)
    code = agents.CodeInterpreterTool(
        tool_config={"type": "code_interpreter", "container": {"type": "auto"}}
    )
    async with hosting.async_client() as client:
        agent = agents.Agent(
            name="A",
            model=agents.OpenAIResponsesModel("demo", client),
            tools=[agents.WebSearchTool(search_context_size="low"), code],
        )
        if streamed:
            result = agents.Runner.run_streamed(agent, prompt)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, prompt)
        assert said in result.final_output
        assert "tool_call_item" in [item.type for item in result.new_items]
        history = [*result.to_input_list(), {"role": "user", "content": "and once more"}]
        again = await agents.Runner.run(agent, history)
        assert again.final_output == "As I said."


@pytest.mark.parametrize(("prompt", "said"), ASKED)
@pytest.mark.parametrize("version", ["v0", "v1", "responses/v1"])
def test_langchain(hosting: RunningGateway, prompt: str, said: str, version: str) -> None:
    langchain_openai = pytest.importorskip(
        "langchain_openai", reason="langchain-openai is not installed"
    )
    chat = langchain_openai.ChatOpenAI(
        model="demo",
        base_url=hosting.base_url,
        api_key="none",
        use_responses_api=True,
        output_version=version,
    ).bind_tools(
        [
            {"type": "web_search_preview"},
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ]
    )
    answer = chat.invoke(prompt)
    assert said in answer.text
    again = chat.invoke([("user", prompt), answer, ("user", "and once more")])
    assert again.text == "As I said."
    whole: Any = None
    for chunk in chat.stream(prompt):
        whole = chunk if whole is None else whole + chunk
    assert said in whole.text
    again = chat.invoke([("user", prompt), whole, ("user", "and once more")])
    assert again.text == "As I said."


@pytest.mark.anyio
@pytest.mark.parametrize(("prompt", "said"), ASKED)
async def test_pydantic_ai(hosting: RunningGateway, prompt: str, said: str) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed")
    capabilities = pytest.importorskip("pydantic_ai.capabilities")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    native = [
        capabilities.NativeTool(pydantic_ai.WebSearchTool()),
        capabilities.NativeTool(pydantic_ai.CodeExecutionTool()),
    ]
    async with hosting.async_client() as client:
        model = models.OpenAIResponsesModel(
            "demo", provider=providers.OpenAIProvider(openai_client=client)
        )
        agent = pydantic_ai.Agent(model, capabilities=native)
        result = await agent.run(prompt)
        assert said in result.output
        parts = [part for message in result.all_messages() for part in message.parts]
        assert "NativeToolReturnPart" in [type(part).__name__ for part in parts]
        async with agent.run_stream(prompt) as stream:
            assert said in await stream.get_output()
        again = await agent.run("and once more", message_history=result.all_messages())
        assert again.output == "As I said."


def test_codex_searches(node_modules: Path, hosting: RunningGateway, tmp_path: Path) -> None:
    command = node_modules / ".bin" / "codex"
    if not command.exists():
        pytest.skip("@openai/codex is not installed there")
    (tmp_path / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "litegate"\nweb_search = "live"\n'
        f'[model_providers.litegate]\nname = "litegate"\nbase_url = "{hosting.base_url}"\nwire_api = "responses"\n'
    )
    done = subprocess.run(
        [str(command), "exec", "--json", "--skip-git-repo-check",
         "--dangerously-bypass-approvals-and-sandbox", ASKED[0][0]],
        cwd=tmp_path,
        env={**os.environ, "CODEX_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, (done.stderr, events)
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert "web_search" in [item["type"] for item in items]
    assert items[-1]["text"].startswith(ASKED[0][1])


@pytest.mark.parametrize(("prompt", "said"), ASKED)
def test_vercel_ai(
    node_modules: Path, hosting: RunningGateway, tmp_path: Path, prompt: str, said: str
) -> None:
    """The tools are run once for each request, and come back by reference and as they stand."""
    if not (node_modules / "ai").exists():
        pytest.skip("the npm package ai is not installed there")
    (tmp_path / "node_modules").symlink_to(node_modules.resolve())
    script = shutil.copy(Path(__file__).parent / "vercel.mjs", tmp_path)
    done = subprocess.run(
        ["node", script, hosting.base_url, "responses", "hosted", prompt],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == []
    plain, streamed, *again = found["texts"]
    assert said in plain
    assert streamed == plain
    assert again == ["As I said."] * 2


def test_claude_code_searches(claude_at: Any, hosting: RunningGateway, tmp_path: Path) -> None:
    events = claude_at(hosting.base_url, tmp_path).events("zebra, search")
    (found,) = [event["tool_use_result"] for event in events if "tool_use_result" in event]
    assert found["searchCount"] == 1
    assert "Tower facts" in json.dumps(found["results"])
    assert "It is 312 metres high" in json.dumps(found["results"])
    assert events[-1]["result"] == "It has its sources."
