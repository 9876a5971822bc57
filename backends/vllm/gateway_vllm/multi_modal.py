"""Prompts with images: vLLM's processor of the model puts the image's tokens in the place of each placeholder. Imports vLLM."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from typing import Any

from vllm.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    VLLMClientError,
)
from vllm.inputs import (  # type: ignore[import-not-found,unused-ignore]
    TokensPrompt as VllmTokensPrompt,
)

from gateway.sdk import Capability, EngineRequest, InvalidRequest, PlacedMedia
from gateway.sdk.engines import check_images, placeholder_ids


class MultiModal:
    """What a loaded model takes beside text."""

    def __init__(self, llm: Any) -> None:
        model = llm.model_config
        self._llm = llm
        self.capabilities: frozenset[Capability] = frozenset()
        self.placeholders: frozenset[int] = frozenset()
        """Token ids that stand for media. Without one there, vLLM's workers may fail on them."""
        if model.is_multimodal_model:
            if "image" in llm.renderer.get_mm_processor().info.get_supported_mm_limits():
                self.capabilities = frozenset({"images", "mm_processor_kwargs"})
            self.placeholders = placeholder_ids(model.hf_config)

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """Raise `InvalidRequest` for media that the model does not take, and for placeholders without media."""
        check_images(
            ids, media, takes_images=bool(self.capabilities), placeholders=self.placeholders
        )

    async def expand(
        self, ids: list[int], media: Sequence[PlacedMedia], request: EngineRequest
    ) -> Any:
        """vLLM's input for a prompt with media. Its `prompt_token_ids` have all tokens of the images."""
        images = await asyncio.to_thread(_images, media)
        prompt = VllmTokensPrompt(
            prompt_token_ids=ids,
            multi_modal_data={"image": images},
            # Another owner must not learn from the time it takes that an image has been seen.
            multi_modal_uuids={
                "image": [request.scoped_to_owner(each.media.sha256) for each in media]
            },
        )
        if (salt := request.prefix_salt) is not None:
            prompt["cache_salt"] = salt
        if request.mm_processor_kwargs:
            prompt["mm_processor_kwargs"] = dict(request.mm_processor_kwargs)
        try:
            # Without the cache that vLLM's processes keep in step: an input that is never sent would leave it wrong.
            return await self._llm.renderer.process_for_engine_async(
                prompt, time.time(), skip_mm_cache=True
            )
        except (VLLMClientError, ValueError) as error:
            raise InvalidRequest(
                f"vLLM cannot process the images of this request: {error}", param=media[0].param
            ) from error
        except Exception as error:
            if not request.mm_processor_kwargs:
                raise
            # The processor's code is the model's, and takes the arguments as they are.
            raise InvalidRequest(
                f"The model's processor cannot take these arguments: {error}",
                param="mm_processor_kwargs",
            ) from error

    def forget(self) -> None:
        """Drop the reference to vLLM after it has ended."""
        self._llm = None


def _images(media: Sequence[PlacedMedia]) -> list[Any]:
    from PIL import Image

    return [
        Image.open(io.BytesIO(each.media.data), formats=("PNG", "JPEG")).convert("RGB")
        for each in media
    ]
