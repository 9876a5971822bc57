"""The message that a started server prints: its address, its models, and an example request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from gateway.models.model_slot import ModelUse


def banner(
    base_url: str,
    models: Sequence[str],
    *,
    use: ModelUse = "generates",
    unix_socket: str | None = None,
    needs_key: bool = False,
    page: bool = False,
) -> str:
    """Return the banner of a server with `models`, at `base_url` (`http://127.0.0.1:8000`) or on a Unix socket.

    `models` must not be empty; the example request is for the first model and its `use`. If requests need an API key,
    the example reads it from `$OPENAI_API_KEY`. `page`: whether the server has a page for browsers at `/`.
    """
    name = json.dumps(models[0], ensure_ascii=False)
    body: dict[str, Any] = {"model": models[0], "input": "Hello!"}
    api = read = ""
    match use:
        case "reranks":
            api = "rerank"
            body = {"model": models[0], "query": "Hello!", "documents": ["Hi!", "Goodbye."]}
        case "embeds":
            api, read = "embeddings", "data[0].embedding"
        case "generates":
            api, read = "responses", "output_text"
    where, transport, imported = base_url, "", ""
    curl_option = ""
    if unix_socket is not None:
        where = f"the Unix socket {unix_socket}"
        curl_option = f"--unix-socket {shlex.quote(unix_socket)} "
        path = json.dumps(unix_socket, ensure_ascii=False)
        imported = "    import httpx\n"
        transport = f", http_client=httpx.Client(transport=httpx.HTTPTransport(uds={path}))"
    curl_key = '-H "authorization: Bearer $OPENAI_API_KEY" ' if needs_key else ""
    sdk_key = "" if needs_key else ', api_key="none"'
    note = "Requests need an API key: export OPENAI_API_KEY=...\n" if needs_key else ""
    browser = f"In a browser: {base_url}\n" if page and unix_socket is None else ""
    curl = f"""\
    curl {curl_option}{base_url}/v1/{api} -H 'content-type: application/json' \\
      {curl_key}-d {shlex.quote(json.dumps(body, ensure_ascii=False))}
"""
    if use == "reranks":  # OpenAI's SDK has no method for it
        sdk = ""
    else:
        sdk = f"""
{imported}    from openai import OpenAI
    client = OpenAI(base_url="{base_url}/v1"{sdk_key}{transport})
    print(client.{api}.create(model={name}, input="Hello!").{read})
"""
    return f"""
Litegate listens on {where}
Models: {", ".join(models)}
{browser}{note}
{curl}{sdk}
Ctrl-C stops it.
"""
