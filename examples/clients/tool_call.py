"""Let the model call a function of this program and use its result in the answer.

python tool_call.py [BASE_URL] [MODEL]
"""

import json
import sys

from openai import OpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=base_url, api_key="none")
model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id

TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


def get_weather(city: str) -> str:
    return json.dumps({"city": city, "temperature": 18, "condition": "cloudy"})


first = client.responses.create(
    model=model, input="What is the weather in Paris?", tools=TOOLS, temperature=0
)
outputs = []
for item in first.output:
    if item.type == "function_call":
        print("the model calls", item.name, item.arguments)
        result = get_weather(**json.loads(item.arguments))
        outputs.append({"type": "function_call_output", "call_id": item.call_id, "output": result})

second = client.responses.create(
    model=model, previous_response_id=first.id, input=outputs, tools=TOOLS, temperature=0
)
print(second.output_text)
