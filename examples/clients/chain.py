"""A conversation stored by the server: each request names the previous response.

python chain.py [BASE_URL] [MODEL]
"""

import sys

from openai import OpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=base_url, api_key="none")
model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id

previous = None
for said in ("My name is Alice.", "What is my name?"):
    response = client.responses.create(
        model=model, input=said, previous_response_id=previous, temperature=0
    )
    print("you:  ", said)
    print("model:", response.output_text)
    previous = response.id
