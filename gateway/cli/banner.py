"""What a started server says: where it listens, what it serves, and a request to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence


def banner(base_url: str, models: Sequence[str], *, embeds: bool = False) -> str:
    """For a server at `base_url` (`http://127.0.0.1:8000`) that serves `models`, of which there is one at least.

    The request is for the first of them, for an embedding where it `embeds` and does nothing else.
    """
    body = json.dumps({"model": models[0], "input": "Hello!"}, ensure_ascii=False)
    api, read = ("embeddings", "data[0].embedding") if embeds else ("responses", "output_text")
    return f"""
Litegate listens on {base_url}
Models: {", ".join(models)}

    curl {base_url}/v1/{api} -H 'content-type: application/json' \\
      -d {shlex.quote(body)}

    from openai import OpenAI
    client = OpenAI(base_url="{base_url}/v1", api_key="none")
    print(client.{api}.create(model={json.dumps(models[0], ensure_ascii=False)}, input="Hello!").{read})

Ctrl-C stops it.
"""
