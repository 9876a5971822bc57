"""Vector stores with files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def filled(client: Any, texts: Mapping[str, bytes]) -> str:
    """The id of a new vector store with these files, which are indexed."""
    store = client.vector_stores.create()
    files = list(texts.items())
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=files)
    assert batch.file_counts.completed == len(files), batch
    return str(store.id)
