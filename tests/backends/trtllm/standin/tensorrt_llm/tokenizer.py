"""A Hugging Face tokenizer inside TensorRT-LLM's own, as much as is used of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers


class HuggingFaceTokenizer:
    def __init__(self, folder: Path) -> None:
        self.backend_tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        told = json.loads((folder / "tokenizer_config.json").read_text())
        self.eos_token = _content(told.get("eos_token"))
        self.bos_token = _content(told.get("bos_token"))
        self.eos_token_id = self.backend_tokenizer.token_to_id(self.eos_token)
        template = folder / "chat_template.jinja"
        self.chat_template = (
            template.read_text() if template.exists() else told.get("chat_template")
        )

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def all_special_ids(self) -> set[int]:
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return {i for i, token in added.items() if token.special}

    def token(self, token_id: int) -> str:
        return self.backend_tokenizer.id_to_token(token_id) or ""

    def encode(self, text: str) -> list[int]:
        return list(self.backend_tokenizer.encode(text, add_special_tokens=False).ids)


class TransformersTokenizer:
    def __init__(self, folder: Path) -> None:
        self.tokenizer = HuggingFaceTokenizer(folder)


def _content(token: Any) -> str | None:
    return token["content"] if isinstance(token, dict) else token
