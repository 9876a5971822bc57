"""Measures how often the tiny model says what is in a picture, on llama.cpp.

usage: python evaluate_vision.py MODEL.gguf MMPROJ.gguf [--count N]

Greedy, with pictures of another seed than the training's. An answer counts only when it is right to the letter.
"""

import argparse
import base64
import io
import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import xllamacpp
from dialogues import Dialogues
from pictures import Picture, Pictures

QUESTION = "What is in this image?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("mmproj", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--wrong", action="store_true", help="print the wrong answers")
    arguments = parser.parse_args()
    server = serve(arguments.model, arguments.mmproj)
    address = server.listening_address
    source, text = Pictures(1_000_001), Dialogues(1_000_001)
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number in range(arguments.count):
        picture = source.draw()
        image, question = image_part(picture), {"type": "text", "text": QUESTION}
        content = [image, question] if number % 2 else [question, image]
        answer = ask(address, [{"role": "user", "content": content}])
        for skill in (kind_of(picture), "all pictures"):
            asked[skill] += 1
            right[skill] += answer == picture.answer
        if arguments.wrong and answer != picture.answer:
            print(f"{picture.answer}  {answer}")
        if number % 4 == 0:
            turn = text.capital()
            history = [
                {"role": "user", "content": content},
                {"role": "assistant", "content": picture.answer},
                {"role": "user", "content": turn.user},
            ]
            asked["a capital after a picture"] += 1
            right["a capital after a picture"] += ask(address, history) == turn.answer
    for skill in asked:
        print(f"| {skill} | {100 * right[skill] / asked[skill]:.0f} |  ({asked[skill]})")


def kind_of(picture: Picture) -> str:
    if not picture.things:
        return "one colour"
    if len(picture.things) == 2:
        return "two things"
    thing = picture.things[0]
    if thing.shape.isdigit():
        return "a digit"
    return "one shape" if thing.count == 1 else f"{thing.count} equal shapes"


def serve(model: Path, mmproj: Path) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.mmproj.path = str(mmproj)
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    params.warmup = False
    return xllamacpp.Server(params)


def image_part(picture: Picture) -> dict[str, Any]:
    out = io.BytesIO()
    picture.image.save(out, "PNG")
    data = base64.b64encode(out.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def ask(address: str, messages: list[dict[str, Any]]) -> str:
    body = {"messages": messages, "temperature": 0, "max_tokens": 60, "cache_prompt": False}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        answer: str = json.load(reply)["choices"][0]["message"]["content"]
    return answer


if __name__ == "__main__":
    main()
