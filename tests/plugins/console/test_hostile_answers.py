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

FORBIDDEN = "img, script, iframe, svg:not(.icon, .katex svg), style, object, embed, form, input:not(.task > input), base, meta, link"
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


MARKS = st.sampled_from(["$", "$$", "\\(", "\\)", "\\[", "\\]", "\\frac{", "}", "[a]: https://x.y", "[a]", "\r\n", "    ", "- [ ] ", "*", "**", "_", "__", "~~", "`", "```", "~~~", "[", "](", ")", "!", "<", ">", "|", "-", "1. ", "# ", "\n", "\n\n", "  ", "\\", "http://x.y/", "https://", "javascript:x", "mailto:a@b.c", "<script>", "<img onerror=x>", "&amp;", "a", "é", "😀", "\u2028", "\x00"])  # fmt: skip


@pytest.fixture(scope="module")
def reader(chromium: Chromium, console: str) -> object:
    with chromium.page() as page:
        page.open(f"{console}/")
        page.run(
            "Promise.all([import('/console/markdown.js'), import('/console/vendor.js')]).then(async ([module, vendor]) => { "
            "await vendor.katex.load(); await vendor.highlighter.load(); "
            "window.read = (text) => { const box = document.createElement('div'); box.append(...module.markdown(text)); return box; }; "
            "window.grown = (text, step) => { const view = new module.GrowingMarkdown(); "
            "for (let end = step; end < text.length; end += step) view.update(text.slice(0, end)); view.update(text, true); return view.element; }; })"
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
        f"same: grown(text, {step}).innerHTML === box.innerHTML}}; }})()"
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
    for line in ("-|-", "|-|-|", " | :-: | --: | ", "|---|---", "---|---|", "|:-:|-"):
        text = json.dumps(f"a|b\n{line}\nc|d")
        assert reader.run(f"read({text}).querySelectorAll('td').length") == 2, line
    for line in ("-||-", "a|-", "||", "- -", ":", "|-|:|", "|-|-|-|"):
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


TEX = ".math.drawn annotation"
"""KaTeX keeps what was written in the formula's MathML."""


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        (r"So \(a_1^2 + b_1^2 = c_1^2\) holds, and \[x * y * z\] too.", ["a_1^2 + b_1^2 = c_1^2", "x * y * z"]),
        ("$$a_i \\\\ b_i$$ and $x_1$, $y_1$.", ["a_i \\\\ b_i", "x_1", "y_1"]),
        ("\\[\n- a_1 *b* \\\\\n\n\\frac{1}{2}\n\\]\nend", ["- a_1 *b* \\\\\n\n\\frac{1}{2}"]),
        ("1. First:\n   \\[\n   x_1\n   \\]\n2. Second", ["x_1"]),
        ("> $$\n> x\n> $$\n\n$$ y $$", ["x", "y"]),
        (r"Escaped: $a \$ b$, \$5 and $c$", [r"a \$ b", "c"]),
        ("| a | b |\n|---|---|\n| $x$ | \\(y\\) |", ["x", "y"]),
        ("It costs $5, or *now* $6; $ 7 $", []),
        ("Between $5 and $6, US$7/$8, or $9", []),
        (r"Not open: \( and \[ and $$ and $", []),
        (r"`$a$ \(b\)`", []),
        ("```\n$$\nx\n$$\n```", []),
    ],
)  # fmt: skip
def test_formulas_are_drawn(reader: Page, text: str, formulas: list[str]) -> None:
    assert html(reader, text, TEX) == formulas
    assert len(html(reader, text, ".math")) == len(formulas)
    for step in (1, 3):  # and the same however it arrives
        grown = f"[...grown({json.dumps(text)}, {step}).querySelectorAll('{TEX}')].map((each) => each.textContent)"
        assert reader.run(grown) == formulas
    assert reader.messages == []


@pytest.mark.parametrize(
    "tex",
    [
        r"\frac{1}{", r"\unknowncommand{x}", r"\def\a{xxxxxxxxxx}\a", r"\newcommand{\R}{\mathbb{R}}\R", r"\let\a=b",
        "{" * 100 + "x" + "}" * 100, r"\sqrt{" * 100 + "x" + "}" * 100, "x" * 5000,
        r"\left(" * 50 + "x" + r"\right)" * 50,
    ],
)  # fmt: skip
def test_formulas_that_cannot_be_read_or_are_too_large_are_shown_as_they_were_written(
    reader: Page, tex: str
) -> None:
    assert html(reader, f"$${tex}$$", ".math") == [f"$${tex}$$"]


def test_formulas_lead_nowhere_and_take_bounded_room(reader: Page) -> None:
    tex = (
        r"\href{https://attacker.example}{a}", r"\url{javascript:1}", r"\includegraphics{https://attacker.example/x.png}",
        r"\htmlId{app}{b}", r"\htmlClass{scroller}{b}", r"\htmlStyle{position:fixed}{b}", r"\htmlData{a=b}{c}",
        r"\rule{99999em}{99999em}", r"\hspace{99999em}x", r"\raisebox{-500em}{x}", r"\kern-500em x",
    )  # fmt: skip
    found = reader.run(
        f"(() => {{ const box = read({json.dumps(chr(10).join(f'$${each}$$' for each in tex))}); box.className = 'markdown'; "
        "document.querySelector('.scroller').append(box); const widest = box.scrollWidth, height = box.scrollHeight; box.remove(); "
        "return {drawn: box.querySelectorAll('.drawn').length, bad: box.querySelectorAll('a, img, [id], [data-a], .scroller').length, "
        "fixed: [...box.querySelectorAll('*')].some((each) => each.style?.position), height, widest}; })()"
    )
    assert found["drawn"] > 5
    assert (found["bad"], found["fixed"]) == (0, False)
    assert found["widest"] <= 1280
    assert found["height"] < 3000
    assert reader.messages == []


def test_styles_of_formulas_hold_under_the_policy(reader: Page) -> None:
    """KaTeX has a few elements with `style` attributes, which the policy refuses: the page sets them otherwise."""
    tex = r"\vec{a} \boxed{b} \pmb{c} \sqrt{d} \widehat{ef} \overbrace{g} \cancel{h} \fcolorbox{red}{white}{i} \xrightarrow{j}"
    styled = f"[...read({json.dumps(f'$${tex}$$')}).querySelectorAll('svg, menclose, mrow, mstyle, mpadded')].filter((each) => each.style.cssText).length"
    assert reader.run(styled) >= 2
    assert reader.messages == []


def test_an_answer_of_many_formulas_draws_only_some(reader: Page) -> None:
    drawn = len(html(reader, "$x$ " * 5000, ".drawn"))
    assert 500 < drawn < 1500
    text = json.dumps("\n\n".join("$x$ " * 50 for _ in range(100)))
    assert reader.run(f"grown({text}, 997).querySelectorAll('.drawn').length") == drawn


def test_code_has_colours_and_its_text_stays(reader: Page) -> None:
    code = 'def f(x: int) -> str:\n    """<b>&amp;"""\n    return f"{x}"  # é\n'
    text = f"```python\n{code}```"
    assert html(reader, text, "code") == [code.removesuffix("\n")]
    assert html(reader, text, ".hljs-keyword") == ["def", "return"]
    assert html(reader, text, ".code-head span") == ["python"]
    for language in (
        "__proto__",
        "constructor",
        "toString",
        "hasOwnProperty",
        "nonsense",
        "text",
        "",
    ):
        assert html(reader, f"```{language}\n{code}```", "code span") == []


def test_long_code_is_shown_without_colours(reader: Page) -> None:
    text = "```js\n" + "let a = 1;\n" * 3000 + "```"
    assert html(reader, text, "code span") == []
    assert len(html(reader, text, "code")[0]) > 30_000


def test_code_that_grows_keeps_its_place_and_its_button(reader: Page) -> None:
    assert reader.run(
        "import('/console/markdown.js').then((module) => { const view = new module.GrowingMarkdown(); document.body.append(view.element); "
        "view.update('Text\\n\\n```python\\na = 1'); const pre = view.element.querySelector('pre'); const button = view.element.querySelector('.code button'); "
        "view.update('Text\\n\\n```python\\na = 1\\nb = 2'); view.update('Text\\n\\n```python\\na = 1\\nb = 2\\n```\\n\\nEnd', true); "
        "const same = view.element.querySelector('pre') === pre && view.element.querySelector('.code button') === button; "
        "view.element.remove(); return same && view.element.querySelector('code').textContent === 'a = 1\\nb = 2'; })"
    )


def test_blocks_that_are_complete_are_not_built_again(reader: Page) -> None:
    """Work for each piece of an answer is that of its last block."""
    found = reader.run(
        "import('/console/markdown.js').then((module) => { const view = new module.GrowingMarkdown(); const text = 'A *paragraph*.\\n\\n- a list\\n\\n'.repeat(200); "
        "let made = 0; const create = document.createElement; document.createElement = function (...all) { made += 1; return create.apply(this, all); }; "
        "for (let end = 1; end < text.length; end += 5) view.update(text.slice(0, end)); view.update(text, true); document.createElement = create; "
        "return [made, text.length, view.element.children.length]; })"
    )
    assert found[2] == 400
    assert found[0] < 8 * found[1]


def test_links_are_found_wherever_their_address_is_defined(reader: Page) -> None:
    text = "[one][a], [two][b]\n\nText\n\n[a]: https://example.org/a\n\nMore\n\n[b]: javascript:1\n\nEnd"
    for shown in (f"read({json.dumps(text)})", f"grown({json.dumps(text)}, 4)"):
        assert reader.run(f"[...{shown}.querySelectorAll('a')].map((each) => each.href)") == [
            "https://example.org/a"
        ]
        assert reader.run(f"{shown}.querySelector('.dead').textContent") == "two"


def test_text_that_is_nested_too_deeply_is_not_lost(reader: Page) -> None:
    for text in (
        "> " * 500 + "word",
        "- " * 500 + "word",
        "\n".join(" " * 2 * n + "- word" for n in range(100)),
    ):
        shown = reader.run(f"read({json.dumps(text)}).textContent")
        assert shown.count("word") == text.count("word")


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
