"""Searching and reading in Chat Completions and in the Anthropic Messages API, by their own clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic

FAMILIES = ("harmony", "qwen3")
TOOLS: Any = [{"type": "web_search_20250305", "name": "web_search"}]
QUESTION: Any = {"role": "user", "content": "how high is the tower"}


@pytest.fixture
def claude(browsing: Any) -> Iterator[Anthropic]:
    root = browsing.base_url.removesuffix("/v1")
    with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", FAMILIES)
def test_messages_show_each_step_and_cite_the_lines(
    claude: Anthropic, shared_site: Any, model: str
) -> None:
    page = f"{shared_site.url}/tower"
    message = claude.messages.create(model=model, max_tokens=500, messages=[QUESTION], tools=TOOLS)
    calls = [block for block in message.content if block.type == "server_tool_use"]
    assert [call.name for call in calls] == ["web_search", "web_fetch", "web_fetch"]
    assert calls[0].input == {"query": "tower height"}
    [found] = [block for block in message.content if block.type == "web_search_tool_result"]
    assert isinstance(found.content, list)
    assert [each.url for each in found.content][:2] == [page, f"{shared_site.url}/bridge"]
    opened, matched = (b for b in message.content if b.type == "web_fetch_tool_result")
    for fetched in (opened, matched):
        assert fetched.content.type == "web_fetch_result"
        assert fetched.content.url == page
        assert "312 metres high" in fetched.content.content.source.data
    texts = [block for block in message.content if block.type == "text"]
    assert [text.text for text in texts] == ["It is 312 metres high", ", they say", "【9†L1】."]
    cited = [[c.to_dict() for c in text.citations or ()] for text in texts]
    assert [each["url"] for each in (*cited[0], *cited[1], *cited[2])] == [page, page]
    assert cited[0][0]["cited_text"] == "It is 312 metres high."
    assert message.usage.server_tool_use is not None
    assert message.usage.server_tool_use.to_dict() == {
        "web_search_requests": 1,
        "web_fetch_requests": 2,
    }


@pytest.mark.parametrize("model", FAMILIES)
def test_a_page_of_an_earlier_message_can_be_cited_and_gone_on_from(
    claude: Anthropic, shared_site: Any, model: str
) -> None:
    options: Any = {"model": model, "max_tokens": 500, "tools": TOOLS}
    first = claude.messages.create(messages=[QUESTION], **options)
    history = [QUESTION, first.to_param()]
    again = claude.messages.create(
        messages=[*history, {"role": "user", "content": "cite it again"}], **options
    )
    cited = again.content[-2] if len(again.content) > 1 else again.content[-1]
    assert cited.type == "text"
    assert cited.citations is not None
    assert cited.citations[0].to_dict()["url"] == f"{shared_site.url}/tower"
    on = claude.messages.create(
        messages=[*history, {"role": "user", "content": "go on from there"}], **options
    )
    [fetched] = [block for block in on.content if block.type == "web_fetch_tool_result"]
    assert fetched.content.type == "web_fetch_result"
    assert fetched.content.url == f"{shared_site.url}/bridge"


@pytest.mark.parametrize("options", [{}, {"search_context_size": "low"}])
def test_a_chat_may_ask_for_a_search(browsing: Any, shared_site: Any, options: Any) -> None:
    place: Any = {"type": "approximate", "approximate": {"city": "Oslo"}}
    asked: Any = {**options, "user_location": place}
    with browsing.client() as client:
        made = client.chat.completions.create(
            model="qwen3", messages=[QUESTION], web_search_options=asked
        )
        without = client.chat.completions.create(model="qwen3", messages=[QUESTION])
    assert [each.url_citation.url for each in made.choices[0].message.annotations or ()] == [
        f"{shared_site.url}/tower"
    ] * 2
    assert "312 metres" not in (without.choices[0].message.content or ""), "nobody has asked"


@pytest.mark.parametrize("model", FAMILIES)
def test_chat_has_links_and_annotations(
    gateway_server: Any, site: Any, browsing_configuration: Any, model: str
) -> None:
    configured = browsing_configuration(site.url)
    gateway = gateway_server({**configured, "server": {"chat_tools": ["browser"]}})
    with gateway.client() as client:
        made = client.chat.completions.create(model=model, messages=[QUESTION])
    message = made.choices[0].message
    link = f"([127.0.0.1]({site.url}/tower))"
    assert message.content == f"It is 312 metres high {link}, they say {link}【9†L1】."
    cited = [each.url_citation for each in message.annotations or ()]
    assert [message.content[each.start_index : each.end_index] for each in cited] == [link, link]
    assert [each.title for each in cited] == ["Tower facts"] * 2
