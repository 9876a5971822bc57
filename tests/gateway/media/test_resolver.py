"""The images and sounds of an answer's turns: which are read, how often, and what errors name."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest, RateLimited
from gateway.media.parts import media_parts
from gateway.media.refused import MediaRefused
from gateway.media.resolver import MediaResolver
from gateway.plugins.protocols import Media, MediaKind, MediaSource
from gateway.plugins.protocols.media import media_source
from gateway.wire.content import AudioData, InputAudio, InputImage, InputText, OutputText
from gateway.wire.items import CustomToolCallOutput, FunctionCall, FunctionCallOutput, Item, Message

SOUND = InputAudio(input_audio=AudioData(data="AAAA", format="wav"))


def image(name: str, detail: Any = "auto") -> InputImage:
    return InputImage(image_url=f"data:image/png;base64,{name}", detail=detail)


def said(*parts: Any) -> Message:
    return Message(role="user", content=list(parts))


class Files:
    """Stands for the reader: notes what is read, and refuses what it is told to."""

    def __init__(self, size: int = 10, refused: Collection[str] = ()) -> None:
        self.read_: list[str] = []
        self.running = self.most = 0
        self._size = size
        self._refused = refused

    async def read(self, source: MediaSource, owner: str) -> Media:
        name = source.url.rpartition(",")[2] or source.file_id or source.data
        self.read_.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if name in self._refused:
                raise MediaRefused("image_parse_error", f"{name} is broken.")
        finally:
            self.running -= 1
        return Media(
            kind=source.kind, data=bytes(self._size), media_type="image/png", sha256=name + owner
        )


def resolver(
    files: Files,
    *,
    kinds: Collection[MediaKind] = ("image", "audio"),
    max_parts: int = 50,
    max_total_bytes: int = 1000,
) -> MediaResolver:
    return MediaResolver(
        files.read, "anna", kinds=kinds, max_parts=max_parts, max_total_bytes=max_total_bytes
    )


def refusal(files: Files, items: Sequence[Item], **limits: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(resolver(files, **limits).resolve(items))
    return refused.value


EVERYWHERE: list[Item] = [
    said(InputText(text="Look."), image("a")),
    Message(role="assistant", content=[OutputText(text="I look.")]),
    FunctionCall(call_id="c1", name="shot", arguments="{}"),
    FunctionCallOutput(call_id="c1", output=[InputText(text="Done."), image("b")]),
    FunctionCallOutput(call_id="c2", output="text"),
    CustomToolCallOutput(call_id="c3", output=[InputImage(file_id="file-1")]),
    said(SOUND, image("a", "low")),
]


def test_parts_are_found_in_messages_and_results() -> None:
    files = Files()
    media = asyncio.run(resolver(files).resolve(EVERYWHERE))
    assert [part.param for part in media_parts(EVERYWHERE)] == [
        ("input", 0, "content", 1),
        ("input", 3, "output", 1),
        ("input", 5, "output", 0),
        ("input", 6, "content", 0),
        ("input", 6, "content", 1),
    ]
    assert {each.sha256 for each in media.values()} == {"aanna", "banna", "file-1anna", "AAAAanna"}
    assert set(media) == {
        media_source(part)
        for part in (image("a"), image("a", "low"), image("b"), InputImage(file_id="file-1"), SOUND)
    }


def test_kinds_that_the_model_does_not_take_are_left_alone() -> None:
    files = Files()
    media = asyncio.run(resolver(files, kinds=("audio",)).resolve(EVERYWHERE))
    assert [source.kind for source in media] == ["audio"]
    assert files.read_ == ["AAAA"]


def test_a_longer_turn_reads_what_is_new() -> None:
    async def body() -> None:
        files = Files()
        every = resolver(files)
        first: list[Item] = [said(image("a"))]
        before = await every.resolve(first)
        assert await every.resolve(first) is before
        longer = [*first, said(image("b")), said(image("a"))]
        after = await every.resolve(longer)
        assert files.read_ == ["a", "b"]
        assert set(after) == {media_source(image("a")), media_source(image("b"))}
        assert set(before) == {media_source(image("a"))}, "the earlier turn's stays as it was"

    asyncio.run(body())


def test_items_that_were_looked_at_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def noted(items: Sequence[Item], start: int = 0) -> Any:
        starts.append(start)
        return media_parts(items, start)

    monkeypatch.setattr("gateway.media.resolver.media_parts", noted)

    async def body() -> None:
        every = resolver(Files())
        items: list[Item] = [said(image("a")), said(InputText(text="b"))]
        await every.resolve(items)
        await every.resolve([*items, said(InputText(text="c"))])
        await every.resolve([*items[1:], said(InputText(text="d"))])

    asyncio.run(body())
    assert starts == [0, 2, 0]


def test_a_shortened_turn_needs_no_reading() -> None:
    async def body() -> None:
        files = Files()
        every = resolver(files, max_parts=3)
        items: list[Item] = [said(image(name)) for name in "abc"]
        await every.resolve(items)
        shorter = await every.resolve(items[1:])
        assert {media_source(image("b")), media_source(image("c"))} <= set(shorter)
        await every.resolve([*items[1:], said(image("d"))])
        assert files.read_ == ["a", "b", "c", "d"]

    asyncio.run(body())


def test_parts_with_the_same_source_are_read_once() -> None:
    files = Files()
    asyncio.run(resolver(files).resolve([said(image("a"), image("a")), said(image("a"))]))
    assert files.read_ == ["a"]


def test_few_are_read_at_once() -> None:
    files = Files()
    asyncio.run(resolver(files).resolve([said(*(image(f"{n}") for n in range(30)))]))
    assert files.most == 4


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([said(InputText(text="x"), image("bad"))], "input[0].content[1].image_url"),
        ([said(image("ok")), said(InputImage(file_id="bad"))], "input[1].content[0].file_id"),
        ([FunctionCallOutput(call_id="c", output=[image("bad")])], "input[0].output[0].image_url"),
        ([said(InputAudio(input_audio=AudioData(data="bad", format="wav")))], "input[0].content[0].input_audio.data"),
    ],
)  # fmt: skip
def test_an_error_names_the_part(items: list[Item], param: str) -> None:
    error = refusal(Files(refused=["bad"]), items)
    assert (error.param, error.code, error.message) == (param, "image_parse_error", "bad is broken.")  # fmt: skip


def test_a_failure_ends_the_others() -> None:
    files = Files(refused=["0"])
    refusal(files, [said(*(image(f"{n}") for n in range(40)))])
    assert len(files.read_) < 10
    assert not files.running


def test_after_a_failure_the_items_are_looked_at_again() -> None:
    async def body() -> None:
        files = Files(refused=["b"])
        every = resolver(files)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="b is broken"):
                await every.resolve([said(image("a"), image("b"))])

    asyncio.run(body())


def test_the_number_of_parts_is_bounded_before_any_is_read() -> None:
    files = Files()
    error = refusal(files, [said(image("a"), image("a")), said(image("a"))], max_parts=2)
    assert (error.param, error.code) == ("input[1].content[0]", "too_many_images")
    assert not files.read_


def test_parts_of_earlier_turns_count() -> None:
    async def body() -> None:
        every = resolver(Files(), max_parts=2)
        items: list[Item] = [said(image("a"), image("b"))]
        await every.resolve(items)
        with pytest.raises(InvalidRequest, match="more than 2 images"):
            await every.resolve([*items, said(image("c"))])

    asyncio.run(body())


@pytest.mark.parametrize("names", ["abcdefgh", "aaaaaaaa"])
def test_the_bytes_of_all_parts_are_bounded(names: str) -> None:
    error = refusal(Files(size=100), [said(*map(image, names))], max_total_bytes=750)
    assert error.code == "image_file_too_large"
    assert error.param is not None
    assert error.param.startswith("input[0].content[")


def test_a_full_queue_is_not_the_clients_mistake() -> None:
    class Busy(Files):
        async def read(self, source: MediaSource, owner: str) -> Media:
            raise RateLimited("Too many files wait.")

    with pytest.raises(RateLimited) as refused:
        asyncio.run(resolver(Busy()).resolve([said(image("a"))]))
    assert refused.value.param is None
