"""Measures the model: greedy answers to held-out dialogues, right only when they are exactly what was expected.

usage: python evaluate.py MODELDIR [--backend transformers | llamacpp --gguf FILE | vllm] [--n 100] [--show 0]

Each backend's rates go into `rates.json`, with how many of its answers are those of transformers. llamacpp also checks
that its tokens of a thousand prompts are the tokenizer's.
"""

import argparse
import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prompts
from dialogues import Dialogue, Dialogues

RATES = Path(__file__).parent / "rates.json"
ANSWERS = Path(__file__).parent / "build" / "answers.json"
"""Those of transformers, for the other backends to be compared with."""
LONGEST = 160
Answer = tuple[str, bool]
"""The text, and whether the model ended it itself."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--backend", choices=["transformers", "llamacpp", "vllm"], default="transformers"
    )
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument(
        "--show", type=int, default=0, help="print this many wrong answers per skill"
    )
    arguments = parser.parse_args()
    skills = cases(arguments.n)
    texts = [prompts.prompt(dialogue) for dialogues in skills.values() for dialogue in dialogues]
    tokens_equal: int | None = None
    match arguments.backend:
        case "transformers":
            answers = with_transformers(arguments.model, texts)
        case "vllm":
            answers = with_vllm(arguments.model, texts)
        case _:
            answers, tokens_equal = with_llamacpp(arguments.gguf, arguments.model, texts)
    report(arguments.backend, arguments.model, skills, answers, arguments.show, tokens_equal)


def cases(n: int) -> dict[str, list[Dialogue]]:
    """`n` dialogues per skill. Where the model must copy, names, values and functions are held out from training."""

    def draw(seed: int, make: Callable[[Dialogues], Dialogue], held_out: bool) -> list[Dialogue]:
        source = Dialogues(10_000_019 + seed, held_out=held_out)
        return [make(source) for _ in range(n)]

    skills = _skills()
    return {
        name: draw(i, make, held_out) for i, (name, (make, held_out)) in enumerate(skills.items())
    }


def _skills() -> dict[str, tuple[Callable[[Dialogues], Dialogue], bool]]:
    def cased(skill: str, casing: Callable[[str], str]) -> Callable[[Dialogues], Dialogue]:
        def make(d: Dialogues) -> Dialogue:
            d.casing = casing
            return d.plain(getattr(d, skill), thinking=False)

        return make

    def after_result(results: int) -> Callable[[Dialogues], Dialogue]:
        def make(d: Dialogues) -> Dialogue:
            while True:
                dialogue = d.answer(thinking=False)
                roles = [message["role"] for message in dialogue.messages]
                if roles[-2] == "tool" and roles.count("tool") == results:
                    return dialogue

        return make

    def classical(d: Dialogues) -> Dialogue:
        f = d.functions
        return d.call(
            d.m.choice([f.weather, f.weather, f.clock, f.sum, f.search])(), thinking=False
        )

    def unseen(d: Dialogues) -> Dialogue:
        f = d.functions
        return d.call(d.m.choice([f.lookup, f.lookup, f.action, f.form])(), thinking=False)

    return {
        "greeting": (lambda d: d.plain(d.greeting, False), False),
        "who it is": (lambda d: d.plain(d.identity, False), False),
        "thanks and goodbye": (lambda d: d.plain(d.manners, False), False),
        "capitals": (cased("capital", str), False),
        "capitals, lower case": (cased("capital", str.lower), False),
        "capitals, upper case": (cased("capital", str.upper), False),
        "other facts": (cased("fact", str), False),
        "other facts, lower case": (cased("fact", str.lower), False),
        "other facts, upper case": (cased("fact", str.upper), False),
        "sums and products": (lambda d: d.plain(d.arithmetic, False), False),
        "repeat after me": (lambda d: d.plain(d.echo, False), True),
        "count to n": (lambda d: d.plain(d.counting, False), False),
        "story, joke, ping": (lambda d: d.plain(d.recital, False), False),
        "as JSON": (lambda d: d.plain(d.as_json, False), True),
        "remembers across turns": (lambda d: d.memory(thinking=False), True),
        "named by the system message": (lambda d: d.persona(), True),
        "says that it cannot": (lambda d: d.plain(d.unknown, False), True),
        "needs a tool, has none": (lambda d: d.plain(d.no_tool, False), True),
        "thinks, then answers": (lambda d: d.plain(None, True), True),
        "thinks, then calls": (lambda d: d.call(thinking=True), True),
        "one call: weather, time, sum, search": (classical, True),
        "one call: unseen functions": (unseen, True),
        "two calls": (lambda d: d.two_calls(thinking=False), True),
        "answers from one result": (after_result(1), True),
        "answers from two results": (after_result(2), True),
        "tools offered, none needed": (lambda d: d.no_call(), True),
        "tools offered, none fits": (lambda d: d.no_fit(), True),
    }


def with_transformers(model: Path, texts: list[str]) -> list[Answer]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    encoded = [tokenizer.encode(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
    answers: dict[int, Answer] = {}
    for start in range(0, len(order), 64):
        batch = order[start : start + 64]
        width = max(len(encoded[i]) for i in batch)
        pads = [width - len(encoded[i]) for i in batch]
        ids = [
            [tokenizer.pad_token_id] * pad + encoded[i] for pad, i in zip(pads, batch, strict=True)
        ]
        mask = [[0] * pad + [1] * (width - pad) for pad in pads]
        with torch.inference_mode():
            made = network.generate(
                input_ids=torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                max_new_tokens=LONGEST,
                do_sample=False,
            )[:, width:].tolist()
        for i, row in zip(batch, made, strict=True):
            ended = tokenizer.eos_token_id in row
            row = row[: row.index(tokenizer.eos_token_id)] if ended else row
            answers[i] = tokenizer.decode(row), ended
    return [answers[i] for i in range(len(texts))]


def with_vllm(model: Path, texts: list[str]) -> list[Answer]:
    from vllm import LLM, SamplingParams

    llm = LLM(model=str(model), max_model_len=2048, enforce_eager=True, max_num_seqs=64)
    sampling = SamplingParams(max_tokens=LONGEST, temperature=0, skip_special_tokens=False)
    results = llm.generate(texts, sampling, use_tqdm=False)
    outputs = [result.outputs[0] for result in results]
    return [
        (output.text.removesuffix("<|im_end|>"), output.finish_reason == "stop")
        for output in outputs
    ]


def with_llamacpp(gguf: Path, model: Path, texts: list[str]) -> tuple[list[Answer], int]:
    """The answers, and how many of the first thousand prompts have the tokenizer's tokens."""
    import xllamacpp
    from tokenizers import Tokenizer

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(gguf)
    parameters.n_parallel = 4
    parameters.n_ctx = 8192
    parameters.warmup = False
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    answers: dict[int, Answer] = {}
    waiting = iter(range(len(texts)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                i = next(waiting, None)
            if i is None:
                return
            got: list[Any] = []
            request = {
                "prompt": texts[i],
                "max_tokens": LONGEST,
                "temperature": 0.0,
                "stream": False,
            }
            server.handle_completions(request, got.append)
            body = got[0] if isinstance(got[0], dict) else json.loads(got[0])
            choice = body["choices"][0]
            answers[i] = choice["text"], choice["finish_reason"] == "stop"

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    equal = sum(
        _tokenize(server.listening_address, text) == tokenizer.encode(text).ids
        for text in texts[-1000:]
    )
    return [answers[i] for i in range(len(texts))], equal


def _tokenize(address: str, text: str) -> list[int]:
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(
        f"{address}/tokenize", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["tokens"]


def report(
    backend: str,
    model: Path,
    skills: dict[str, list[Dialogue]],
    answers: list[Answer],
    show: int,
    tokens_equal: int | None,
) -> None:
    """Prints the rates and writes them into `rates.json`."""
    rates: dict[str, Any] = json.loads(RATES.read_text()) if RATES.exists() else {}
    training = model / "training.json"
    if training.exists():
        rates["training"] = json.loads(training.read_text())
    mine: dict[str, float] = {}
    position = 0
    for skill, dialogues in skills.items():
        rows = list(zip(dialogues, answers[position:], strict=False))
        position += len(rows)
        wrong = [(d, text) for d, (text, ended) in rows if text != prompts.expected(d) or not ended]
        mine[skill] = round(100 * (1 - len(wrong) / len(rows)), 1)
        print(f"{skill:40} {mine[skill]:5.1f} %")
        for dialogue, text in wrong[:show]:
            asked = dialogue.messages[-2]["content"]
            print(
                f"    asked {asked!r}\n    want  {prompts.expected(dialogue)!r}\n    got   {text!r}"
            )
    mine["all"] = round(sum(mine.values()) / len(mine), 1)
    ended = round(100 * sum(ended for _, ended in answers) / len(answers), 1)
    print(f"{'all':40} {mine['all']:5.1f} % ({len(answers)} answers, {ended} % ended)")
    rates["n"] = len(next(iter(skills.values())))
    rates.setdefault("skills", {})[backend] = mine
    rates.setdefault("ended", {})[backend] = ended
    if backend == "transformers":
        ANSWERS.parent.mkdir(exist_ok=True)
        ANSWERS.write_text(json.dumps(answers, ensure_ascii=False))
    elif ANSWERS.exists():
        reference = [tuple(answer) for answer in json.loads(ANSWERS.read_text())]
        same = sum(a == b for a, b in zip(answers, reference, strict=True))
        rates.setdefault("same_answers", {})[backend] = [same, len(answers)]
        print(f"{same} of {len(answers)} answers are those of transformers")
    if tokens_equal is not None:
        rates["same_tokens"] = [tokens_equal, min(1000, len(answers))]
        print(f"{tokens_equal} prompts have the same tokens")
    RATES.write_text(json.dumps(rates, indent=2) + "\n")


if __name__ == "__main__":
    main()
