"""Documents over HTTP, by the official SDKs: every API, to a model that says what it has read."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.e2e.media.documents import READ, TOWER, encoded, file, marked
from tests.encrypted_pdf import encrypted_pdf
from tests.media_files import asked, seen
from tests.pdf_files import text_pdf

CONFIG = """
[server]
port = {port}

[media]
allow_hosts = ["{library}"]
allow_private = true

[documents]
max_files = 3
max_text = 2000
max_total_text = 3000
max_pages = 4
max_page_images = 2
page_side = 100

[resources.files]

[models.reading]
engine = "scripted"

[models.seeing]
engine = "scripted"
[models.seeing.scripted]
media = ["image"]
"""
LOCKED = encrypted_pdf(TOWER, "secret")


def word(text: str) -> bytes:
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        relation = f"<Relationship Id='r' Type='{kind}' Target='word/document.xml'/>"
        archive.writestr("_rels/.rels", f"<Relationships>{relation}</Relationships>")
        body = f"<w:document xmlns:w='w'><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
        archive.writestr("word/document.xml", body)
    return made.getvalue()


class _Library(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        files = {
            "/the%20tower.pdf": ("application/pdf", TOWER),
            "/page": ("text/html; charset=utf-8", b"<h1>Tower</h1><script>no</script>"),
            "/moved": ("http://169.254.169.254/latest", b""),
        }
        kind, data = files.get(self.path, ("", b""))
        self.send_response(302 if kind.startswith("http:") else 200 if data else 404)
        self.send_header("location" if kind.startswith("http:") else "content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def library() -> Iterator[str]:
    """The address of a server that has documents."""
    server = HTTPServer(("127.0.0.1", 0), _Library)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def server(start_server: Any, library: str) -> Any:
    return start_server(CONFIG.replace("{library}", library.removeprefix("http://")))


@pytest.fixture
def claude(server: Any) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("tower.pdf", TOWER, READ),
        ("notes.md", b"# Tower\n\nof *iron*", "# Tower\n\nof *iron*"),
        ("page.html", b"<h1>Tower</h1><p>of <b>iron</b>", "# Tower\nof iron"),
        ("tower.docx", word("of iron"), "of iron"),
    ],
)
def test_each_kind_is_read_where_it_stands(
    client: OpenAI, name: str, data: bytes, text: str
) -> None:
    given = asked("before", file(data, name), "after")
    response = client.responses.create(model="reading", input=given)
    assert response.output_text == f"before{marked(name, text)}after"  # the model joins parts
    length = client.responses.input_tokens.count(model="reading", input=given).input_tokens
    assert response.usage is not None
    assert response.usage.input_tokens == length


def test_a_file_is_named_by_id_by_url_or_sent(client: OpenAI, library: str) -> None:
    stored = client.files.create(file=("stored.pdf", TOWER), purpose="user_data")
    by_id = {"type": "input_file", "file_id": stored.id}
    for part, name in (
        (by_id, "stored.pdf"),
        ({**by_id, "filename": "my.pdf"}, "my.pdf"),
        ({"type": "input_file", "file_url": f"{library}/the%20tower.pdf"}, "the tower.pdf"),
        ({"type": "input_file", "file_data": encoded(TOWER)}, "file"),
    ):
        response = client.responses.create(model="reading", input=asked(part))
        assert response.output_text == marked(name)
    page = {"type": "input_file", "file_url": f"{library}/page"}
    response = client.responses.create(model="reading", input=asked(page))
    assert response.output_text == marked("page", "# Tower")
    client.files.delete(stored.id)
    with pytest.raises(openai.BadRequestError, match="no file with this id") as caught:
        client.responses.create(model="reading", input=asked(by_id))
    assert (caught.value.param, caught.value.code) == ("input[0].content[0].file_id", "file_not_found")  # fmt: skip


def test_the_history_keeps_the_file_as_it_was_sent(client: OpenAI) -> None:
    first = client.responses.create(model="reading", input=asked("see", file(TOWER)))
    (stored,) = client.responses.input_items.list(first.id).data
    assert stored.content[1].file_data == file(TOWER)["file_data"]  # type: ignore[union-attr,index]
    alone = client.responses.input_tokens.count(model="reading", input="and").input_tokens
    chained = client.responses.create(model="reading", input="and", previous_response_id=first.id)
    assert chained.usage is not None
    assert chained.usage.input_tokens > alone + len(READ) // 8
    conversation = client.conversations.create(items=asked("this", file(TOWER)))
    for _ in range(2):
        said = client.responses.create(model="reading", input="and", conversation=conversation.id)
        assert said.usage is not None
        assert said.usage.input_tokens > alone + len(READ) // 8


def test_a_file_is_read_in_the_background_and_for_a_stream(client: OpenAI) -> None:
    for background in (False, True):
        stream = client.responses.create(
            model="reading", input=asked(file(TOWER)), background=background, stream=True
        )
        last = list(stream)[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == marked("tower.pdf")


def test_the_output_of_a_tool_has_a_file(client: OpenAI, server: Any) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [file(TOWER)]}
    given: Any = [*asked("look"), call, output]
    count = client.responses.input_tokens.count
    assert count(model="reading", input=given).input_tokens > len(READ) // 8
    output["output"] = [file(b"%PDF-")]
    with pytest.raises(openai.BadRequestError, match="PDF is broken") as caught:
        client.responses.create(model="reading", input=given)
    assert caught.value.param == "input[2].output[0].file_data"


def test_pages_are_shown_to_models_that_see_and_are_asked_to(client: OpenAI) -> None:
    given = asked("before", file(TOWER, detail="high"), "after")
    response = client.responses.create(model="seeing", input=given)
    assert seen(response.output_text) == ["78x100", "78x100"]
    assert response.output_text.startswith(f"before{marked('tower.pdf')}[image")
    assert response.output_text.endswith("]after")
    assert response.usage is not None
    counted = client.responses.input_tokens.count(model="seeing", input=given)
    assert counted.input_tokens == response.usage.input_tokens
    for model, detail in (("seeing", "low"), ("reading", "high")):
        given = asked(file(TOWER, detail=detail))
        response = client.responses.create(model=model, input=given)
        assert response.output_text == marked("tower.pdf")


def test_a_scan_has_pages_and_no_text(client: OpenAI) -> None:
    scan = file(text_pdf(""), detail="high")
    response = client.responses.create(model="seeing", input=asked(scan))
    assert seen(response.output_text) == ["78x100"]
    with pytest.raises(openai.BadRequestError, match="has no text") as caught:
        client.responses.create(model="reading", input=asked(scan))
    assert caught.value.code == "invalid_file"


def chat_file(**fields: str) -> Any:
    return [{"role": "user", "content": [{"type": "file", "file": fields}]}]


def test_chat_reads_files(client: OpenAI, server: Any) -> None:
    stored = client.files.create(file=("stored.md", b"hi"), purpose="user_data")
    for fields, expected in (
        ({"file_id": stored.id}, marked("stored.md", "hi")),
        ({"filename": "a.pdf", "file_data": file(TOWER)["file_data"]}, marked("a.pdf")),
    ):
        messages = chat_file(**fields)
        answer = client.chat.completions.create(model="reading", messages=messages)
        assert answer.choices[0].message.content == expected
        counted = httpx.post(f"{server.url}/tokenize", json={"model": "reading", "messages": messages})  # fmt: skip
        assert answer.usage is not None
        assert counted.json()["count"] == answer.usage.prompt_tokens
    for field, value in (("file_data", encoded(LOCKED)), ("file_id", "file-x")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="reading", messages=chat_file(**{field: value}))
        assert caught.value.param == f"messages[0].content[0].file.{field}"


def test_messages_read_documents(claude: Anthropic, client: OpenAI, library: str) -> None:
    stored = client.files.create(file=("stored.pdf", TOWER), purpose="user_data")
    sources: list[Any] = [
        {"type": "base64", "media_type": "application/pdf", "data": encoded(TOWER)},
        {"type": "url", "url": f"{library}/the%20tower.pdf"},
        {"type": "file", "file_id": stored.id},
    ]
    for source in sources:
        document = {"type": "document", "source": source, "title": "T"}
        for content in ([document], [{"type": "text", "text": "see"}, document]):
            messages: Any = [{"role": "user", "content": content}]
            counted = claude.messages.count_tokens(model="reading", messages=messages)
            answer = claude.messages.create(model="reading", messages=messages, max_tokens=500)
            assert answer.content[0].type == "text"
            assert answer.content[0].text.endswith(marked("T"))
            assert answer.usage.input_tokens == counted.input_tokens
    source = {**sources[0], "data": encoded(LOCKED)}
    messages = [{"role": "user", "content": [{"type": "document", "source": source}]}]
    with pytest.raises(anthropic.BadRequestError, match="protected by a password") as refused:
        claude.messages.create(model="reading", messages=messages, max_tokens=9)
    assert "messages[0].content[0]" in str(refused.value)


BAD: list[tuple[dict[str, Any], str, str, str]] = [
    (file(LOCKED), "file_data", "invalid_file", "protected by a password"),
    (file(TOWER[:300]), "file_data", "invalid_file", "PDF is broken"),
    (file(bytes(range(256)), "a.bin"), "file_data", "unsupported_file", "Files of this kind"),
    (file(b"x" * 2001, "a.txt"), "file_data", "invalid_file", "more than 2000 characters"),
    (file(text_pdf("a", "b", "c", "d", "e")), "file_data", "invalid_file", "limit is 4"),
    (file(b" ", "a.txt"), "file_data", "invalid_file", "has no text"),
    (file(b""), "file_data", "empty_file", "is empty"),
    ({"type": "input_file", "file_data": "a b"}, "file_data", "invalid_base64_file", "not valid base64"),
    ({"type": "input_file", "file_data": "data:text/plain,hello"}, "file_data", "invalid_file_url", "data: URL"),
    ({"type": "input_file", "file_url": "ftp://a.example/b"}, "file_url", "invalid_file_url", "URL of a file"),
    ({"type": "input_file", "file_url": "http://a.example/b"}, "file_url", "invalid_file_url", "not fetched"),
    ({"type": "input_file", "file_id": "file-1"}, "file_id", "file_not_found", "no file with this id"),
    ({"type": "input_file"}, "file_id", "missing_required_parameter", "has none of"),
]  # fmt: skip


@pytest.mark.parametrize("model", ["reading", "seeing"])
@pytest.mark.parametrize(("part", "field", "code", "message"), BAD)
def test_a_bad_file_is_refused_by_its_place(
    client: OpenAI, model: str, part: dict[str, Any], field: str, code: str, message: str
) -> None:
    for make in (client.responses.create, client.responses.input_tokens.count):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            make(model=model, input=asked("a", part, "b"))  # type: ignore[operator]
        assert caught.value.param == f"input[0].content[1].{field}"
        assert caught.value.code == code


def test_a_missing_page_and_a_forbidden_address_are_told(client: OpenAI, library: str) -> None:
    for path, code in (("/none", "failed_to_download_file"), ("/moved", "invalid_file_url")):
        part = {"type": "input_file", "file_url": f"{library}{path}"}
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="reading", input=asked(part))
        assert (caught.value.param, caught.value.code) == ("input[0].content[0].file_url", code)


def test_the_number_of_files_their_text_and_their_pages_are_limited(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="more than 3 files") as caught:
        client.responses.create(model="reading", input=asked(*[file(b"x", "a.txt")] * 4))
    assert (caught.value.param, caught.value.code) == ("input[0].content[3]", "too_many_files")
    with pytest.raises(openai.BadRequestError, match="3000 characters together") as caught:
        client.responses.create(model="reading", input=asked(*[file(b"x" * 1800, "a.txt")] * 2))
    assert caught.value.param == "input[0].content[1].file_data"
    one = file(text_pdf("a"), detail="high")
    client.responses.create(model="seeing", input=asked(one, one))
    with pytest.raises(openai.BadRequestError, match="more than 2 pages") as caught:
        client.responses.create(model="seeing", input=asked(one, one, one))
    assert caught.value.param == "input[0].content[2].detail"
    three = file(text_pdf("a", "b", "c"), detail="high")
    with pytest.raises(openai.BadRequestError, match="at most 2 as images"):
        client.responses.create(model="seeing", input=asked(three))


def test_an_image_beside_a_file_is_refused_by_its_own_place(client: OpenAI) -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    given: Any = asked(file(TOWER, detail="high"), part)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="seeing", input=given)
    assert caught.value.param == "input[0].content[1].image_url"
    with pytest.raises(openai.BadRequestError, match="takes no images") as caught:
        client.responses.create(model="reading", input=given)
    assert caught.value.param == "input[0].content[1].type"
    forged = {"type": "input_image", "image_url": "page:" + 64 * "0"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="seeing", input=asked(forged))
    assert caught.value.code == "invalid_image_url"
