"""Images and sounds in prompts: their number, their order and their places, and what tries to look like one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import Media, MediaSource, TokensPrompt
from gateway_chat_template import ChatTemplateRenderer
from gateway_chat_template.media_marks import mark_of

Placeholders = Literal["template", "none"]

USER = {"role": "user", "content": "hi"}
CALLS = (
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
)
CONTENT = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}"
    "{% if p.type == 'image' %}IMAGE{% elif p.type == 'audio' %}<|audio|>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}"
)
SEEING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + CONTENT + CALLS + "<|im_end|>{% endfor %}"
    "{% if tools %}{{ tools }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
)
SEEING_TEMPLATES = [
    SEEING.replace("IMAGE", "<image>"),
    SEEING.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    SEEING.replace("IMAGE", "\n<|image_pad|>\n"),
]
PLACEHOLDERS = ("<image>", "<|image_pad|>", "<|audio|>")
TEXTS = st.lists(
    st.sampled_from(
        ["a", " b", "\n", "", "é🙂", mark_of(0), mark_of(1), mark_of(7), "\u2060\u2063-",
         "<|im_end|>", *PLACEHOLDERS, "<|vision_start|>", "<|im", "_end|>", "0-\u2063\u2060"]
    ),
    max_size=4,
).map("".join)  # fmt: skip
PARTS = st.one_of(
    TEXTS.map(lambda text: {"type": "input_text", "text": text}),
    st.integers(0, 5).map(
        lambda n: {"type": "input_image", "image_url": f"data:{n}", "detail": "low"}
    ),
    st.integers(0, 2).map(
        lambda n: {"type": "input_audio", "input_audio": {"data": f"{n}", "format": "wav"}}
    ),
)
MESSAGES = st.lists(
    st.one_of(
        st.lists(PARTS, max_size=5).map(lambda parts: {"role": "user", "content": parts}),
        TEXTS.map(lambda text: {"role": "assistant", "content": text}),
        st.lists(PARTS.filter(lambda part: part["type"] != "input_audio"), max_size=3).map(
            lambda parts: {"type": "function_call_output", "call_id": "c", "output": parts}
        ),
    ),
    max_size=5,
)


def source_of(part: Mapping[str, Any]) -> MediaSource | None:
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            return MediaSource(kind="image", url=url, detail=part.get("detail", "auto"))
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return MediaSource(kind="audio", data=data, detail="wav")
    return None


def media_of(items: list[Any]) -> dict[MediaSource, Media]:
    """Media for all parts: each says in its hash what it was made of."""
    found = {}
    for item in items:
        for part in [*(item.get("content") or []), *(item.get("output") or [])]:
            if not isinstance(part, str) and (source := source_of(part)):
                name = source.url or source.data
                found[source] = Media(
                    kind=source.kind, data=b"", media_type="x/y", sha256=f"{source.kind} {name}"
                )
    return found


def expected(items: list[Any]) -> list[tuple[str, str]]:
    """The media of a conversation, in the order of the prompt, with the parameters of their parts."""
    shown: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        where = "output" if "output" in item else "content"
        parts = item.get(where, ())
        for at, part in enumerate(parts if not isinstance(parts, str) else ()):
            if source := source_of(part):
                name = f"{source.kind} {source.url or source.data}"
                shown.append((name, f"input[{index}].{where}[{at}]"))
    return shown


def prompt_of(renderer: ChatTemplateRenderer, render: Any, items: list[Any]) -> TokensPrompt:
    prompt = renderer.render(render.turn(items, media=media_of(items))).prompt
    assert isinstance(prompt, TokensPrompt)
    return prompt


def path(param: tuple[str | int, ...]) -> str:
    return InvalidRequest("", param=param).param or ""


def as_text(items: list[Any], between: str) -> list[Any]:
    """The conversation without its media: the text of each message is one part, with `between` where two texts follow each other."""
    made = []
    for item in items:
        if isinstance(item.get("content"), list):
            text, after_text = "", False
            for part in item["content"]:
                if part["type"] == "input_text":
                    # Empty parts are skipped.
                    text += (between if after_text and part["text"] else "") + part["text"]
                    after_text = after_text or bool(part["text"])
                else:
                    after_text = False
            item = {**item, "content": text}
        made.append(item)
    return made


@settings(max_examples=40)
@given(items=MESSAGES)
@pytest.mark.parametrize("template", ["chatml", "no_system", "parts", SEEING_TEMPLATES[0]])
def test_marks_leave_the_prompt_without_images_and_their_places(
    template: str, items: list[Any], render: Any, with_placeholders: Any
) -> None:
    """With any template, and whatever the text looks like."""
    items = [item for item in items if "output" not in item]
    renderer = render.with_template(template, placeholders="none", tokenizer=with_placeholders)
    prompt = prompt_of(renderer, render, items)
    between = "" if "user" in renderer.features.several_parts else "\n"
    without = renderer.render(render.turn(as_text(items, between))).prompt
    assert without.media == ()
    trims = template == "no_system"
    assert trims or list(prompt.token_ids) == list(without.token_ids)
    assert [(each.media.sha256, path(each.param)) for each in prompt.media] == expected(items)
    ats = [each.at for each in prompt.media]
    assert ats == sorted(ats)
    assert all(0 <= at <= len(prompt.token_ids) for at in ats)


@settings(max_examples=40)
@given(items=MESSAGES)
@pytest.mark.parametrize("template", SEEING_TEMPLATES)
def test_media_stand_at_the_placeholders_of_the_template(
    template: str, items: list[Any], render: Any, with_placeholders: Any
) -> None:
    renderer = render.with_template(template, tokenizer=with_placeholders)
    assert renderer.media_kinds == {"image", "audio"}
    calls = [render.call("c")]
    items = [each for item in items for each in ([*calls, item] if "output" in item else [item])]
    prompt = prompt_of(renderer, render, items)
    assert [(each.media.sha256, path(each.param)) for each in prompt.media] == expected(items)
    image = "<image>" if "<image>" in template else "<|image_pad|>"
    names = {"image": image, "audio": "<|audio|>"}
    ids = {kind: with_placeholders.added_tokens[name].id for kind, name in names.items()}
    assert [prompt.token_ids[each.at] for each in prompt.media] == [
        ids[each.media.kind] for each in prompt.media
    ]
    assert sum(each in ids.values() for each in prompt.token_ids) == len(prompt.media)


@settings(max_examples=30)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_places_are_between_the_texts_that_the_client_sent(
    texts: list[str], render: Any, with_placeholders: Any
) -> None:
    image = {"type": "input_image", "image_url": "data:0", "detail": "low"}
    content = [part for text in texts for part in ({"type": "input_text", "text": text}, image)]
    renderer = render.with_template("chatml", placeholders="none", tokenizer=with_placeholders)
    prompt = prompt_of(renderer, render, [{"role": "user", "content": content}])
    starts = [0, *(each.at for each in prompt.media)]
    ends = [*starts[1:], len(prompt.token_ids)]
    runs = [
        with_placeholders.decode(prompt.token_ids[a:b]) for a, b in zip(starts, ends, strict=True)
    ]
    head, tail = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    assert runs == [head + texts[0], *texts[1:], tail]


@pytest.mark.parametrize("placeholders", ["template", "none"])
def test_images_that_tools_gave_follow_all_results(
    placeholders: Placeholders, render: Any, with_placeholders: Any
) -> None:
    """A model that sees none is told so: an agent whose tool has shown one could go on with no request otherwise."""
    image = {"type": "input_image", "image_url": "data:0"}
    shown = {"type": "function_call_output", "call_id": "c1", "output": [image]}
    items = [USER, render.call("c1"), render.call("c2"), shown, render.output("c2", "two")]
    items.append(render.said("user", "what is it"))
    seeing = render.with_template(
        SEEING_TEMPLATES[0], placeholders=placeholders, tokenizer=with_placeholders
    )
    prompt = prompt_of(seeing, render, items)
    (placed,) = prompt.media
    assert path(placed.param) == "input[3].output[0]"
    before = with_placeholders.decode(prompt.token_ids[: placed.at])
    after = with_placeholders.decode(prompt.token_ids[placed.at :])
    assert before.index("(The image follows.)") < before.index("two") < before.rindex("user")
    assert "what is it" in after
    blind = with_placeholders.decode(seeing.render(render.turn(items)).prompt.token_ids)
    assert blind.index("(An image, which this model cannot see.)") < blind.index("two")


IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:0"}]}
SOUND = {
    "role": "user",
    "content": [{"type": "input_audio", "input_audio": {"data": "0", "format": "wav"}}],
}


@pytest.mark.parametrize("template", ["chatml", SEEING_TEMPLATES[0]])
@pytest.mark.parametrize(
    ("item", "message"), [(IMAGE, "takes no images"), (SOUND, "takes no audio")]
)
def test_a_blind_model_refuses_by_the_part(
    template: str, item: Any, message: str, render: Any, with_placeholders: Any
) -> None:
    """Also if its template has a place for images, and if it takes others, but not this kind."""
    renderer = render.with_template(template, tokenizer=with_placeholders, placeholders="none")
    other = SOUND if item is IMAGE else IMAGE
    for media in (None, {}, media_of([other])):
        with pytest.raises(InvalidRequest, match=message) as caught:
            renderer.render(render.turn([USER, item], media=media))
        assert caught.value.param == "input[1].content[0].type"


@pytest.mark.parametrize("template", ["chatml", "alternate", "parts"])
def test_a_template_without_placeholders_of_its_own_is_blind(template: str, render: Any) -> None:
    """`parts` writes `<image>`, but that is seven tokens to this tokenizer."""
    renderer = render.with_template(template)
    assert renderer.media_kinds == set()
    with pytest.raises(InvalidRequest, match="takes no images"):
        renderer.render(render.turn([IMAGE], media=media_of([IMAGE])))


ESCAPING = "{% for m in messages %}{{ m.content | escape }}{% endfor %}"
LAST_ONLY = "{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}"
TWICE = "{% for m in messages %}[{{ m.content }}]{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}"
BACKWARDS = "{% for m in messages | reverse %}[{{ m.content }}]{% endfor %}"


def test_a_template_that_changes_all_text_is_blind(render: Any) -> None:
    assert render.with_template(ESCAPING, placeholders="none").media_kinds == set()


def test_an_image_that_the_template_drops_is_refused(render: Any) -> None:
    renderer = render.with_template(LAST_ONLY, placeholders="none")
    assert [each.at for each in prompt_of(renderer, render, [IMAGE]).media] == [0]
    with pytest.raises(InvalidRequest, match="does not show this image") as caught:
        prompt_of(renderer, render, [IMAGE, {"role": "assistant", "content": "yo"}, USER])
    assert caught.value.param == "input[0].content[0]"


def test_images_follow_their_messages_where_a_template_reorders_or_repeats_them(
    render: Any,
) -> None:
    def image(name: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "input_image", "image_url": name}]}

    twice = prompt_of(
        render.with_template(TWICE, placeholders="none"), render, [image("a"), image("b")]
    )
    assert [(each.media.sha256, each.at) for each in twice.media] == [
        ("image a", 1),
        ("image a", 2),
        ("image b", 3),
    ]
    back = prompt_of(
        render.with_template(BACKWARDS, placeholders="none"),
        render,
        [image("a"), {"role": "assistant", "content": "yo"}, image("b")],
    )
    assert [each.media.sha256 for each in back.media] == ["image b", "image a"]


def test_a_template_that_writes_placeholders_of_its_own_is_refused(
    render: Any, with_placeholders: Any
) -> None:
    """Which of them stands for the image cannot be known."""
    template = SEEING_TEMPLATES[0] + "{% if messages | length > 1 %}<image>{% endif %}"
    renderer = render.with_template(template, tokenizer=with_placeholders)
    assert len(prompt_of(renderer, render, [IMAGE]).media) == 1
    with pytest.raises(InvalidRequest, match="has 2 places for the 1 parts of the kind 'image'"):
        prompt_of(renderer, render, [IMAGE, USER])


@pytest.mark.anyio
@pytest.mark.parametrize("placeholders", ["template", "none"])
async def test_a_template_of_the_request_places_images_too(
    placeholders: Placeholders, render: Any, with_placeholders: Any
) -> None:
    renderer = render.with_template(
        SEEING_TEMPLATES[0], placeholders=placeholders, tokenizer=with_placeholders, trusted=True
    )
    own = "<|im_start|>" + SEEING_TEMPLATES[0]
    turn = render.turn([USER, IMAGE], media=media_of([IMAGE]), chat_template=own)
    for rendered in (renderer.render(turn), await renderer.render_isolated(turn)):
        (placed,) = rendered.prompt.media
        assert with_placeholders.decode(rendered.prompt.token_ids[: placed.at]) == (
            "<|im_start|><|im_start|>user\nhi<|im_end|><|im_start|>user\n"
        )


def test_a_final_message_is_continued_behind_an_image(render: Any) -> None:
    items = [IMAGE, {"role": "assistant", "content": "It is"}]
    renderer = render.with_template("chatml", placeholders="none")
    turn = render.turn(items, media=media_of(items), continue_final_message=True)
    prompt = renderer.render(turn).prompt
    text = "".join(map(chr, prompt.token_ids))
    assert text.endswith("assistant\nIt is")
    assert [each.at for each in prompt.media] == [len("<|im_start|>user\n")]
