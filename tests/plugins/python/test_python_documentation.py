"""What docs/tools.md and the READMEs of `python` and `container` show works, and is all there is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import ContainerConfig, ContainersConfig
from gateway_python.plugin import PythonConfig
from tests.markdown import blocks

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
READMES = {
    name: (ROOT / "plugins" / name / "README.md").read_text(encoding="utf-8")
    for name in ("python", "container")
}
CONFIGS: dict[tuple[str, str], type[msgspec.Struct]] = {
    ("tools", "python"): PythonConfig,
    ("tools", "container"): ContainerConfig,
    ("resources", "containers"): ContainersConfig,
}
SALES = (
    "import csv; t = sum(int(r['sum']) for r in csv.DictReader(open('sales.csv'))); "
    "open('total.txt', 'w').write(str(t)); print('total' + ' known')"
)
RULES = """
[models.m.scripted]
rules = [
  { when = "please compute", pieces = [{ call = { name = "python", arguments = { code = "print(6 * 7)" } } }] },
  { when = "42", pieces = [{ text = "It is 42." }] },
  { when = "list the files", pieces = [{ call = { name = "shell", arguments = { commands = ["echo f''ound"] } } }] },
  { when = "found", pieces = [{ text = "One." }] },
  { when = "sum up", pieces = [{ call = { name = "python", arguments = { code = "SALES" } } }] },
  { when = "total known", pieces = [{ text = "The total is in [a file](sandbox:/mnt/data/total.txt)." }] },
]
""".replace("SALES", SALES)


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("heading", "printed"),
    [
        ("Python", "print(6 * 7) 42\n It is 42.\n"),
        ("A shell in a container", "shell_call\nshell_call_output\nmessage\n"),
        (
            "Containers and their files",
            "The total is in [a file](sandbox:/mnt/data/total.txt).\n"
            "total.txt sandbox:/mnt/data/total.txt\n42\n",
        ),
    ],
)
@pytest.mark.slow
def test_the_examples_run(
    gateway_server: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    heading: str,
    printed: str,
) -> None:
    [table] = blocks(section(heading), "toml")
    table = table.replace("/var/lib/gateway", str(tmp_path))
    table = table.replace("/srv/analysis/bin/python", sys.executable)
    [code] = blocks(section(heading), "python")
    try:
        gateway = gateway_server(f'[models.m]\nengine = "scripted"\n{RULES}{table}')
    except ConfigurationError as error:
        if "cannot keep code apart" not in str(error):
            raise
        pytest.skip(str(error))
    with gateway.client() as client:
        exec(code, {"client": client})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", [PAGE, *READMES.values()], ids=["tools.md", *READMES])
def test_each_table_of_toml_is_a_configuration(page: str) -> None:
    for table in blocks(page, "toml"):
        for section_, tables in tomllib.loads(table).items():
            for name, config in tables.items():
                if (section_, name) in CONFIGS:
                    msgspec.convert(config, CONFIGS[section_, name])


@pytest.mark.parametrize(
    ("page", "config"),
    [
        (READMES["container"].split("## `[tools.container]`")[0], ContainersConfig),
        (READMES["container"].split("## `[tools.container]`")[1], ContainerConfig),
        (READMES["python"], PythonConfig),
    ],
)
def test_the_readmes_have_each_key_with_its_default(
    page: str, config: type[msgspec.Struct]
) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\|", page, re.MULTILINE))
    fields = {field.encode_name: field for field in msgspec.structs.fields(config)}
    assert set(rows) == set(fields)
    for name, shown in rows.items():
        default = fields[name].default
        if default is msgspec.NODEFAULT:
            default = fields[name].default_factory()
        said = "" if default is None else f"`{msgspec.json.encode(default).decode()}`"
        assert shown == said, name


def test_listing_the_plugins_does_not_import_what_runs_them() -> None:
    code = (
        "import sys; from gateway.plugins.loading import load_plugins; p = load_plugins(); "
        "names = {o.name for o in p.offers('tool')}; assert {'python', 'container'} <= names; "
        "print('gateway_container.sandbox.process' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
