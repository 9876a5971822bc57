"""Stream a response and print its reasoning and text as they arrive.

python stream.py [BASE_URL] [MODEL]
"""

import sys

from openai import OpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=base_url, api_key="none")
model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id

with client.responses.stream(model=model, input="What is the capital of France?") as stream:
    for event in stream:
        if event.type in ("response.reasoning_text.delta", "response.output_text.delta"):
            print(event.delta, end="", flush=True)
    print()
    print(stream.get_final_response().usage)
