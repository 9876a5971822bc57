"""Prompts with images: TensorRT-LLM's input processor of the model puts the image's tokens in the place of each placeholder."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any

from gateway.sdk import Capability, EngineRequest, InvalidRequest, PlacedMedia
from gateway.sdk.engines import HfTokenizer, check_images, placeholder_ids


class MultiModal:
    """What a loaded model takes beside text.

    Input processors that do not expand tokens (`supports_token_id_mm_expansion`) decode the prompt and encode it again. A
    prompt that would not come back the same is refused, because text of clients could become control tokens.
    """

    def __init__(self, llm: Any, tokenizer: HfTokenizer) -> None:
        self._llm = llm
        self._tokenizer = tokenizer
        processor: Any = getattr(llm, "input_processor", None)
        self._processor = processor
        self._takes_tokens = bool(getattr(processor, "supports_token_id_mm_expansion", False))
        self._placeholders = placeholder_ids(llm._hf_model_config)
        sees = (
            getattr(llm._hf_model_config, "vision_config", None) is not None
            and hasattr(processor, "get_num_tokens_per_image")
            and hasattr(llm, "preprocess")
        )
        self.capabilities: frozenset[Capability] = frozenset({"images"} if sees else ())

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """Raise `InvalidRequest` for media that the model does not take, and for placeholders without media."""
        check_images(
            ids, media, takes_images=bool(self.capabilities), placeholders=self._placeholders
        )

    async def length(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> int:
        """The length of the prompt in tokens, with those of its images. Raises `InvalidRequest`."""
        return await asyncio.to_thread(self._length, ids, media)

    async def expand(
        self, ids: Sequence[int], media: Sequence[PlacedMedia], request: EngineRequest
    ) -> Any:
        """TensorRT-LLM's preprocessed input. Its `prompt_token_ids` have all tokens of the images. Raises
        `InvalidRequest`."""
        return await asyncio.to_thread(self._expand, ids, media, request)

    def forget(self) -> None:
        """Drop the references to TensorRT-LLM, which is about to end."""
        self._llm = self._processor = None

    def _length(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> int:
        self._check_text(ids, media)
        total = len(ids) - len(media)
        for placed in media:
            try:
                total += int(self._processor.get_num_tokens_per_image(image=_image(placed)))
            except Exception as error:  # processors of models raise several kinds of exceptions
                raise _refused(error, placed) from error
        return total

    def _expand(
        self, ids: Sequence[int], media: Sequence[PlacedMedia], request: EngineRequest
    ) -> Any:
        self._check_text(ids, media)
        try:
            return self._llm.preprocess(
                {
                    "prompt_token_ids": list(ids),
                    "multi_modal_data": {"image": [_image(placed) for placed in media]},
                    # Another owner must not learn from the time it takes that an image has been seen.
                    "multi_modal_uuids": {
                        "image": [request.scoped_to_owner(each.media.sha256) for each in media]
                    },
                }
            )
        except Exception as error:  # processors of models raise several kinds of exceptions
            raise _refused(error, media[0]) from error

    def _check_text(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        if self._takes_tokens:
            return
        text = self._tokenizer.decode(ids)
        if self._tokenizer.encode(text) != list(ids):
            raise InvalidRequest(
                "TensorRT-LLM takes prompts with images as text for this model, and this prompt has text that would be read "
                "as other tokens, such as the name of a control token. Leave it out.",
                param=media[0].param,
            )


def _image(placed: PlacedMedia) -> Any:
    from PIL import Image

    data = io.BytesIO(placed.media.data)
    return Image.open(data, formats=("PNG", "JPEG")).convert("RGB")


def _refused(error: Exception, placed: PlacedMedia) -> InvalidRequest:
    return InvalidRequest(
        f"TensorRT-LLM cannot process the images of this request: {error}", param=placed.param
    )
