"""Files of containers: what the model's code writes can be fetched, what is put in it can read, and answers cite them."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.base.errors import ConfigurationError
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway

pytestmark = pytest.mark.slow

AUTO: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]
OUTPUTS: Any = ["code_interpreter_call.outputs"]
ODD = """import os
os.symlink('/etc/passwd', 'link')
os.symlink('/', 'root')
os.mkfifo('fifo')
os.mkdir('.hidden'); open('.hidden/x', 'w').write('x')
os.mkdir('sub'); open('sub/deep.txt', 'w').write('deep')
open(b'\\xff\\xfe', 'w').write('no text')
open('line\\nbreak', 'w').write('no')
open('\\u202eevil', 'w').write('no')
open('good.txt', 'w').write('good')
print('odd' + ' files')"""
PLOT = """import matplotlib.pyplot as plt
figure, axes = plt.subplots()
axes.plot([1, 2, 3], [1, 4, 9])
axes.set_title('squares')
figure.savefig('squares.png')
plt.figure(); plt.bar(['a', 'b'], [1, 2])
print('plotted' + ' it')"""

Start = Callable[..., RunningGateway]


@pytest.fixture
def start(gateway_server: Any) -> Start:
    """Start a gateway whose model runs code: `start({"asked for": (code, "what it prints", "the answer")})`."""

    def started(cells: dict[str, tuple[str, str, str]], **table: Any) -> RunningGateway:
        rules: list[dict[str, Any]] = []
        for asked, (code, printed, answer) in cells.items():
            shell = asked.startswith("$")
            name, arguments = (
                ("shell", {"commands": [code]}) if shell else ("python", {"code": code})
            )
            rules += (
                {"when": asked, "pieces": [{"call": {"name": name, "arguments": arguments}}]},
                {"when": printed, "pieces": [{"text": answer}]},
            )
        tools = {"python": {}, "container": {}, **table.pop("tools", {})}
        config = {
            "server": table.pop("server", {}),
            "models": {
                "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}
            },
            "tools": tools,
            "resources": {"containers": table},
        }
        try:
            running: RunningGateway = gateway_server(config)
        except ConfigurationError as error:
            if "cannot keep code apart" in str(error):
                pytest.skip(str(error))
            raise
        return running

    return started


def content(client: Any, file: Any) -> bytes:
    read: bytes = client.containers.files.content.retrieve(
        file.id, container_id=file.container_id
    ).read()
    return read


REPORT = {
    "make a report": (
        "import os; os.mkdir('out'); open('out/my report.csv', 'w').write('a,b\\n'); print('it' + ' is made')",
        "it is made",
        "See [it](sandbox:/mnt/data/out/my%20report.csv), not [that](sandbox:/mnt/data/none.csv).",
    ),
    "where was it": (
        "print('look' + 'ed')",
        "looked",
        "Still at sandbox:/mnt/data/out/my report.csv",
    ),
}


def test_what_code_has_written_is_cited_and_can_be_fetched(start: Start) -> None:
    gateway = start(REPORT, keep_running=0.0)
    with gateway.client() as client:
        response = client.responses.create(model="m", input="make a report", tools=AUTO)
        [call, message] = response.output
        [cited] = message.content[0].annotations
        assert cited.type == "container_file_citation"
        assert cited.container_id == call.container_id
        assert cited.filename == "my report.csv"
        text = response.output_text
        assert text[cited.start_index : cited.end_index] == "sandbox:/mnt/data/out/my%20report.csv"
        [file] = client.containers.files.list(call.container_id).data
        assert (file.id, file.path) == (cited.file_id, "/mnt/data/out/my report.csv")
        assert file.source == "assistant"
        assert content(client, file) == b"a,b\n", "the sandbox has ended, and its files are kept"

        later = client.responses.create(
            model="m", input="where was it", tools=AUTO, previous_response_id=response.id
        )
        [again] = later.output[-1].content[0].annotations
        assert again.file_id == cited.file_id, "a later response may cite it"
        assert later.output_text[again.start_index :] == "sandbox:/mnt/data/out/my report.csv"


def test_an_annotation_is_told_behind_the_text_that_it_is_about(start: Start) -> None:
    gateway = start(REPORT)
    body = {"model": "m", "input": "make a report", "tools": AUTO, "stream": True}
    events = parse_sse(httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60).content)
    kinds = [event["type"] for event in events]
    added = events[kinds.index("response.output_text.annotation.added")]
    text = "".join(
        event["delta"]
        for event in events[: events.index(added)]
        if event["type"] == "response.output_text.delta"
    )
    assert len(text) == added["annotation"]["end_index"]
    assert fold(events)["output"][-1]["content"][0]["annotations"] == [added["annotation"]]


def test_a_container_that_was_made_keeps_variables_and_sees_uploads(start: Start) -> None:
    gateway = start(
        {
            "begin": ("x = 41; print('be' + 'gun')", "begun", "Begun."),
            "go on": ("print(x + int(open('one.txt').read()), 'here')", "42 here", "Gone on."),
            "look": ("import os; print(os.listdir(), x, 'there')", "41 there", "Seen."),
        }
    )
    with gateway.client() as client:
        container = client.containers.create(name="mine").id
        tools: Any = [{"type": "code_interpreter", "container": container}]

        def ask(asked: str) -> Any:
            return client.responses.create(model="m", input=asked, tools=tools, include=OUTPUTS)

        assert ask("begin").output_text == "Begun."
        file = client.containers.files.create(container, file=("one.txt", b"1"))
        second = ask("go on")
        assert second.output_text == "Gone on."
        assert second.output[0].container_id == container
        client.containers.files.delete(file.id, container_id=container)
        assert ask("look").output[0].outputs[0].logs == "[] 41 there\n"
        client.containers.delete(container)
        with pytest.raises(openai.NotFoundError) as gone:
            ask("look")
        assert gone.value.param == "tools[0].container"


GO_ON = {
    "begin": ("x = 41; open('own', 'w').write('1'); print('be' + 'gun')", "begun", "Begun."),
    "go on": (
        "import os; print(globals().get('x'), sorted(os.listdir()), 'he' + 're')",
        "here",
        "On.",
    ),
}


def test_a_conversation_goes_on_in_its_container(start: Start, tmp_path: Path) -> None:
    gateway = start(GO_ON, tools={"file_search": {}})
    with gateway.client() as client:
        up = client.files.create(file=("own", b"another"), purpose="user_data").id
        new = client.files.create(file=("new", b"2"), purpose="user_data").id
        first = client.responses.create(model="m", input="begin", tools=AUTO)
        container = first.output[0].container_id

        def go_on(**more: Any) -> tuple[str, str]:
            auto: Any = {"type": "auto", **more.pop("container", {})}
            tools: Any = [{"type": "code_interpreter", "container": auto}]
            said = client.responses.create(model="m", tools=tools, include=OUTPUTS, **more)
            call = next(item for item in said.output if item.type == "code_interpreter_call")
            return call.container_id, call.outputs[0].logs

        chained: Any = {"input": "go on", "previous_response_id": first.id}
        assert go_on(**chained) == (container, "41 ['own'] here\n")
        files = {"file_ids": [up, new]}
        assert go_on(**chained, container=files) == (container, "41 ['new', 'own'] here\n")
        own = [
            file for file in client.containers.files.list(container) if file.path.endswith("own")
        ]
        assert content(client, own[0]) == b"1", "what is there already is left alone"
        sent: Any = [item.to_dict() for item in first.output]
        resent = {"input": [*sent, {"role": "user", "content": "go on"}], "store": False}
        assert go_on(**resent) == (container, "41 ['new', 'own'] here\n")
        assert go_on(input="go on")[0] != container
        client.containers.delete(container)
        other, logs = go_on(**chained)
        assert other != container
        assert logs == "None [] here\n"


def test_another_keys_container_is_not_gone_on_in(start: Start) -> None:
    keys = [
        {"name": name, "sha256": hashlib.sha256((name[0] * 40).encode()).hexdigest()}
        for name in ("alice", "bob")
    ]
    gateway = start(GO_ON, server={"api_keys": keys})
    with gateway.client(api_key="a" * 40) as alice, gateway.client(api_key="b" * 40) as bob:
        first = alice.responses.create(model="m", input="begin", tools=AUTO)
        sent: Any = [item.to_dict() for item in first.output]
        asked: Any = [*sent, {"role": "user", "content": "go on"}]
        second = bob.responses.create(model="m", input=asked, tools=AUTO, include=OUTPUTS)
        call = next(item for item in second.output if item.type == "code_interpreter_call")
        assert call.container_id != first.output[0].container_id
        assert call.outputs[0].logs == "None [] here\n"


def test_python_and_the_shell_share_a_container(start: Start) -> None:
    gateway = start(
        {
            "write": ("open('n', 'w').write('1234'); print('writ' + 'ten')", "written", "Yes."),
            "$ cat": ("cat n; rm n; echo; echo se''en", "seen", "Read."),
        }
    )
    with gateway.client() as client:
        container = client.containers.create(name="both").id
        client.responses.create(
            model="m", input="write", tools=[{"type": "code_interpreter", "container": container}]
        )
        environment: Any = {"type": "container_reference", "container_id": container}
        read = client.responses.create(
            model="m", input="$ cat", tools=[{"type": "shell", "environment": environment}]
        )
        assert read.output[1].output[0].stdout == "1234\nseen\n"
        assert read.output[0].environment.container_id == container
        assert client.containers.files.list(container).data == [], "what was removed is gone"


def test_an_auto_container_has_the_files_that_were_asked_for(start: Start, tmp_path: Path) -> None:
    gateway = start(
        {"count": ("print(len(open('/mnt/data/data.bin', 'rb').read()), 'bytes')", "1000000 bytes", "Many.")},
        tools={"file_search": {}},
    )  # fmt: skip
    with gateway.client() as client:
        up = client.files.create(file=("data.bin", bytes(1_000_000)), purpose="user_data").id
        container: Any = {"type": "auto", "file_ids": [up], "memory_limit": "1g"}
        tools: Any = [{"type": "code_interpreter", "container": container}]
        response = client.responses.create(model="m", input="count", tools=tools)
        assert response.output_text == "Many."
        made = client.containers.retrieve(response.output[0].container_id)
        assert made.memory_limit == "1g"
        [file] = client.containers.files.list(made.id).data
        assert (file.path, file.source) == ("/mnt/data/data.bin", "user")


def test_only_plain_files_with_plain_names_are_kept(start: Start) -> None:
    gateway = start({"be odd": (ODD, "odd files", "Odd.")})
    with gateway.client() as client:
        response = client.responses.create(model="m", input="be odd", tools=AUTO)
        assert response.output[0].status == "completed"
        files = client.containers.files.list(response.output[0].container_id).data
        assert {file.path: content(client, file) for file in files} == {
            "/mnt/data/good.txt": b"good",
            "/mnt/data/sub/deep.txt": b"deep",
        }


def test_the_model_is_told_what_could_not_be_kept(start: Start) -> None:
    many = "for n in range(20): open(f'f{n:02}', 'w').write('x')\nprint('many' + ' files')"
    large = "open('large', 'wb').write(bytes(900_000)); print('large' + ' file')"
    gateway = start(
        {
            "make plenty": (many, "more than 5 files: not all of them are kept", "Too many."),
            "be huge": (large, "/mnt/data/large could not be kept.", "Too large."),
        },
        max_files=5,
        max_total_bytes=500_000,
    )
    with gateway.client() as client:
        response = client.responses.create(model="m", input="make plenty", tools=AUTO)
        assert response.output_text == "Too many."
        assert len(client.containers.files.list(response.output[0].container_id).data) == 5
        assert (
            client.responses.create(model="m", input="be huge", tools=AUTO).output_text
            == "Too large."
        )


def test_processes_that_share_a_folder_work_in_the_same_containers(
    start: Start, tmp_path: Path
) -> None:
    """Files are everywhere the same; calls take turns; variables are each process's own."""
    append = (
        "import time; n = len(open('n').read()); time.sleep(0.2); open('n', 'a').write('x'); "
        "print('now' + ' at', n + 1)"
    )
    cells = {"append": (append, "now at", "Done.")}
    gateways = [start(cells, path=str(tmp_path / "shared")) for _ in range(2)]
    with gateways[0].client() as here, gateways[1].client() as there:
        container = here.containers.create(name="ours").id
        here.containers.files.create(container, file=("n", b""))
        tools: Any = [{"type": "code_interpreter", "container": container}]

        def ask(client: Any) -> str:
            response = client.responses.create(model="m", input="append", tools=tools)
            return str(response.output_text)

        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(ask, [here, there] * 3)) == {"Done."}
        [file] = there.containers.files.list(container).data
        assert content(there, file) == b"xxxxxx", "no call has missed what another wrote"


def test_containers_of_responses_make_room_for_others(start: Start, tmp_path: Path) -> None:
    import sqlite3

    gateway = start(REPORT, path=str(tmp_path / "kept"), max_containers=2)
    with gateway.client() as client:
        mine = client.containers.create(name="mine").id
        first = client.responses.create(model="m", input="make a report", tools=AUTO)
        with sqlite3.connect(tmp_path / "kept" / "containers.sqlite3", timeout=60) as database:
            database.execute("UPDATE containers SET active_at = active_at - 100")
        database.close()
        second = client.responses.create(model="m", input="make a report", tools=AUTO)
        left = {each.id for each in client.containers.list()}
        assert left == {mine, second.output[0].container_id}
        assert first.output[0].container_id not in left


def test_use_keeps_a_container_alive(start: Start, tmp_path: Path) -> None:
    import sqlite3

    gateway = start(GO_ON, path=str(tmp_path / "kept"))
    with gateway.client() as client:
        container = client.containers.create(name="used").id
        with sqlite3.connect(tmp_path / "kept" / "containers.sqlite3", timeout=60) as database:
            database.execute("UPDATE containers SET active_at = active_at - 1000")
        database.close()
        before = client.containers.retrieve(container).last_active_at
        tools: Any = [{"type": "code_interpreter", "container": container}]
        client.responses.create(model="m", input="go on", tools=tools)
        assert client.containers.retrieve(container).last_active_at >= before + 999


def test_real_figures_are_shown_and_kept(start: Start) -> None:
    pytest.importorskip("matplotlib")
    gateway = start(
        {"plot": (PLOT, "plotted it", "Here: ![squares](sandbox:/mnt/data/squares.png)")},
        python=sys.executable,
    )
    with gateway.client(timeout=120) as client:
        response = client.responses.create(model="m", input="plot", tools=AUTO, include=OUTPUTS)
        [call, message] = response.output
        assert call.status == "completed", call.outputs
        logs, *images = call.outputs
        assert logs.logs == "plotted it\n"
        assert [image.type for image in images] == ["image", "image"], "of each open figure"
        for image in images:
            kind, _, data = image.url.partition(",")
            assert kind == "data:image/png;base64"
            assert size_of(base64.b64decode(data)) == (640, 480)
        [cited] = message.content[0].annotations
        assert cited.filename == "squares.png"
        [file] = client.containers.files.list(call.container_id).data
        assert file.id == cited.file_id
        assert size_of(content(client, file)) == (640, 480)


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
