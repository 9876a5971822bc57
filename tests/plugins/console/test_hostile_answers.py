"""Answers of models that try to take over the page."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .chromium import Chromium, Page
from .console_page import LAST, ask, finished

pytestmark = pytest.mark.browser

FORBIDDEN = (
    "img, script, iframe, svg:not(.icon), style, object, embed, form, input, base, meta, link"
)
LINKS = f"[...document.querySelectorAll('{LAST} .answer a')].map((each) => each.href)"


def test_nothing_of_a_hostile_answer_is_interpreted(page: Page, console: str) -> None:
    ask(page, "hostile answer")
    text = finished(page)
    page.run("document.querySelector('.reasoning').open = true")
    assert '<img src=x onerror="window.owned = 1">' in text
    assert "<script>window.owned = 2</script>" in text
    assert page.run(f"document.querySelectorAll('{LAST} .markdown :is({FORBIDDEN})').length") == 0
    links = page.run(LINKS)
    assert "https://example.org/page" in links
    assert "https://example.org/angled" in links
    assert all(link.startswith(("https:", "http:")) for link in links), links
    assert page.run(
        f"[...document.querySelectorAll('{LAST} .markdown a')].every((each) => each.rel.includes('noopener') && each.target === '_blank')"
    )
    assert page.run("window.owned") is None
    assert all(url.startswith((console, "about:")) for url in page.requested)
    assert page.messages == []


def test_a_line_of_a_million_characters_does_not_stop_the_page(page: Page) -> None:
    ask(page, "a million characters")
    finished(page)
    assert page.run(f"document.querySelector('{LAST} .markdown').textContent.length") >= 1_000_000
    assert page.run("document.querySelector('.scroller').scrollWidth <= innerWidth")
    ask(page, "Hello")
    page.wait("document.querySelectorAll('.turn').length === 2")
    assert page.messages == []


def test_the_browser_refuses_html_even_if_the_page_tried(page: Page) -> None:
    refused = page.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch (error) { return error.name; } })()"
    )
    assert refused == "TypeError"
    page.run(
        "document.body.append(Object.assign(new Image(), {src: 'https://attacker.example/x.png'}))"
    )
    page.wait("document.body.lastChild.complete")
    assert page.run("document.body.lastChild.naturalWidth") == 0


MARKS = st.sampled_from(["*", "**", "_", "__", "~~", "`", "```", "~~~", "[", "](", ")", "!", "<", ">", "|", "-", "1. ", "# ", "\n", "\n\n", "  ", "\\", "http://x.y/", "https://", "javascript:x", "mailto:a@b.c", "<script>", "<img onerror=x>", "&amp;", "a", "é", "😀", "\u2028", "\x00"])  # fmt: skip


@pytest.fixture(scope="module")
def reader(chromium: Chromium, console: str) -> object:
    with chromium.page() as page:
        page.open(f"{console}/")
        page.run(
            "import('/console/markdown.js').then((module) => { window.read = (text) => { const box = document.createElement('div'); "
            "box.append(...module.markdown(text)); return box; }; window.grown = (text, step) => { const view = new module.GrowingMarkdown(); "
            "for (let end = step; end < text.length + step; end += step) view.update(text.slice(0, end)); return view.element; }; })"
        )
        yield page


@settings(max_examples=150)
@given(st.lists(MARKS, max_size=60).map("".join), st.integers(1, 40))
def test_no_text_becomes_markup(reader: Page, text: str, step: int) -> None:
    """Whatever is written, and however it is cut: the same nodes, all of them harmless, and no text is lost."""
    found = reader.run(
        f"(() => {{ const text = {json.dumps(text)}; const box = read(text); const links = [...box.querySelectorAll('a')]; "
        f"return {{bad: box.querySelectorAll('{FORBIDDEN}').length, links: links.map((each) => each.protocol), "
        f"attributes: [...box.querySelectorAll('*')].flatMap((each) => each.getAttributeNames()).filter((each) => each.startsWith('on')), "
        f"letters: [...box.textContent.matchAll(/[aé😀]/gu)].length, same: grown(text, {step}).textContent.replace(/\\s/g, '') === box.textContent.replace(/\\s/g, '')}}; }})()"
    )
    assert found["bad"] == 0
    assert found["attributes"] == []
    assert set(found["links"]) <= {"http:", "https:", "mailto:"}
    assert found["same"]


@pytest.mark.parametrize("unit", ["*a ", "[", "![", "`", "`` ` ", "](", "<h", "http", "> ", "- ", "|", "_a*", "1. ", "#", "\\", "~~", "**a", "[a](b", "|-", "-:|", "\\(", "\\[", "$", "$a", "$$", "\\[\n", "$$\n", "- [ ] "])  # fmt: skip
def test_a_long_text_of_marks_is_read_in_one_go(reader: Page, unit: str) -> None:
    """The time is that of CDP's own limit; text whose reading took quadratic time would not come back within it."""
    for text in (unit * (300_000 // len(unit)), (unit * 40 + "\n") * (300_000 // len(unit) // 40)):
        assert reader.run(f"read({json.dumps(text)}).textContent.length") >= 0


@pytest.mark.parametrize(
    "line", ["#{0}{0}{0}a\u2028b", "-{0}{0}{0}a\u2028b", "1.{0}{0}{0}a\u2028b", "a|b\n{0}-{0}x"]
)
def test_white_space_is_read_in_one_go(reader: Page, line: str) -> None:
    """Each of these lines once took seconds, because an expression tried every division of the white space."""
    width = 990 if "|" in line else 15_000
    text = "\n".join([line.replace("{0}", " " * width)] * 80)
    assert reader.run(f"read({json.dumps(text)}).textContent.length") >= 0


def test_a_table_is_a_table_however_its_line_is_written(reader: Page) -> None:
    for line in ("-|-", "|-|-|", " | :-: | --: | ", "|---", "---|", ":-", "|:-:|"):
        text = json.dumps(f"a|b\n{line}\nc|d")
        assert reader.run(f"read({text}).querySelectorAll('td').length") == 2, line
    for line in ("-||-", "a|-", "||", "- -", ":", "|-|:|"):
        text = json.dumps(f"a|b\n{line}\nc|d")
        assert reader.run(f"read({text}).querySelectorAll('td').length") == 0, line


def test_the_call_to_approve_is_shown_as_it_is(reader: Page) -> None:
    """Without characters that hide others or turn their order around, without lost digits, and with names that are there twice."""
    item = {
        "type": "mcp_approval_request",
        "name": "pay\u202eyap",
        "server_label": "bank\u200b\U000e0041",
        "arguments": '{"to": "a\u2066b", "amount": 12345678901234567890, "amount": 1.0}',
    }
    code = (
        "import('/console/items.js').then((module) => { const view = module.itemView("
        f"{json.dumps(item)}); view.update({json.dumps(item)}, true); return view.element.textContent; }})"
    )
    shown = reader.run(code)
    for part in ("pay\\u202eyap", "bank\\u200b\\udb40\\udc41", '"a\\u2066b"', "12345678901234567890", '"amount": 1.0'):  # fmt: skip
        assert part in shown
    assert not {"\u202e", "\u200b", "\u2066", "\U000e0041"} & set(shown)


def test_indented_json_has_the_same_tokens(reader: Page) -> None:
    chance = random.Random(7)
    plain = [None, True, 0, -7, 10**20, "", 'a"\\{}[],:\n', "é\u2028", "\\", " "]

    def value(depth: int) -> Any:
        kind = chance.choice(("plain", "list", "object")) if depth < 4 else "plain"
        if kind == "plain":
            return chance.choice(plain)
        members = [value(depth + 1) for _ in range(chance.randrange(4))]
        return members if kind == "list" else {f'"{n},:': each for n, each in enumerate(members)}

    values = [value(0) for _ in range(300)]
    written = [json.dumps(each, indent=chance.choice((None, 1, 3))) for each in values]
    shown = reader.run(
        f"import('/console/dom.js').then((module) => {json.dumps(written)}.map(module.prettyJson))"
    )
    assert shown == [json.dumps(each, indent=2) for each in values]


def test_deeply_nested_json_is_not_much_longer_when_it_is_indented(reader: Page) -> None:
    nested = 'const text = "[".repeat(100000) + "]".repeat(100000)'
    length = reader.run(
        f"import('/console/dom.js').then((module) => {{ {nested}; return module.prettyJson(text).length; }})"
    )
    assert length < 20_000_000


def html(reader: Page, text: str, selector: str) -> list[str]:
    return reader.run(
        f"[...read({json.dumps(text)}).querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)"
    )


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        (r"So \(a_1^2 + b_1^2 = c_1^2\) holds, and \[x * y * z\] too.", [r"\(a_1^2 + b_1^2 = c_1^2\)", r"\[x * y * z\]"]),
        ("$$a_i \\\\ b_i$$ and $x_1$, $y_1$.", ["$$a_i \\\\ b_i$$", "$x_1$", "$y_1$"]),
        ("\\[\n- a_1 *b* \\\\\n\n\\frac{1}{2}\n\\]\nend", ["\\[\n- a_1 *b* \\\\\n\n\\frac{1}{2}\n\\]"]),
        ("1. First:\n   \\[\n   x_1\n   \\]\n2. Second", ["\\[\nx_1\n\\]"]),
        ("It costs $5, or *now* $6; $ 7 $", []),
        (r"Not open: \( and \[ and $$ and $", []),
        (r"`$a$ \(b\)`", []),
    ],
)  # fmt: skip
def test_formulas_are_shown_as_they_were_written(
    reader: Page, text: str, formulas: list[str]
) -> None:
    assert html(reader, text, ".math") == formulas
    for step in (1, 3):  # and the same however it arrives
        grown = f"[...grown({json.dumps(text)}, {step}).querySelectorAll('.math')].map((each) => each.textContent)"
        assert reader.run(grown) == formulas


def test_tables_are_aligned_and_their_words_stay_whole(reader: Page) -> None:
    text = "| left | right | middle |\n|:--|--:|:-:|\n| Quicksort | 1 | yes |"
    for side, cells in (("end", ["right", "1"]), ("middle", ["middle", "yes"])):
        assert html(reader, text, f".{side}") == cells
    assert html(reader, text, "td") == ["Quicksort", "1", "yes"]


def test_tasks_have_boxes_that_cannot_be_ticked(reader: Page) -> None:
    text = "- [ ] **open**\n- [x] done\n- [no] task\n- [link](https://example.org)"
    assert html(reader, text, "li.task") == [" open", " done"]
    boxes = f"[...read({json.dumps(text)}).querySelectorAll('input')].map((each) => [each.checked, each.disabled])"
    assert reader.run(boxes) == [[False, True], [True, True]]


def test_text_that_is_written_from_right_to_left_is_laid_out_so(reader: Page) -> None:
    text = "שלום עולם:\n\n1. אחת\n2. שתיים\n\n```\ncode\n```\n\nPlain English."
    found = f"(() => {{ const box = read({json.dumps(text)}); document.body.append(box); const of = (name) => [...box.querySelectorAll(name)].map((each) => getComputedStyle(each).direction); const all = [of('p'), of('ol'), of('.code')]; box.remove(); return all; }})()"
    assert reader.run(found) == [["rtl", "ltr"], ["rtl"], ["ltr"]]
