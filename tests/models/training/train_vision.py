"""Teaches the tiny model to say what is in a picture, on one CPU core.

usage: python train_vision.py MODELDIR OUTDIR [--pictures N] [--first N] [--steps N] [--seed N] [--go-on]

First, a new tower alone learns to tell what is in a picture, by a linear layer that is thrown away. Then a new
projector and the language model of MODELDIR learn to say it, among dialogues without pictures. All pictures are drawn by
`pictures.py`; everything follows from the seed and the numbers of steps, never from the clock. OUTDIR receives the
language model as `train.py` writes it, and tower and projector as `mmproj.gguf`. With `--go-on`, MODELDIR is such a folder,
and the second part goes on from it.
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import prompts
import torch
import vision_to_gguf
from picture_dialogues import MARK, PictureDialogues
from pictures import COLOURS, SHAPES, Picture, Pictures, seen
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train import IGNORED, WIDTH, causal_attention
from transformers import AttentionInterface, LlavaForConditionalGeneration, PreTrainedTokenizerFast
from vision import SIZE, TOKENS, make_model

PICTURES = 40000
FIRST = 2500
STEPS = 1500
FIRST_BATCH = 128
BATCH = 32
LONGEST = 192
"""Longer dialogues are left out."""
SHORT = 64
SHORT_SHARE = 0.75
"""The share of steps, at the start, on dialogues of up to `SHORT` tokens."""
WARM_UP = 100
FIRST_RATE = 3e-3
RATE = 2e-3
LANGUAGE_RATE = 1e-3
TOWER_RATE = 1e-3

Row = tuple[list[int], list[int], list[int]]
"""Token ids, labels, and the numbers of the pictures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pictures", type=int, default=PICTURES)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--go-on", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    started, cpu = time.time(), time.process_time()
    source = Pictures(arguments.seed)
    pixels = torch.empty(arguments.pictures, 3, SIZE, SIZE, dtype=torch.uint8)
    answers: list[str] = []
    found: list[list[int]] = []
    for row in pixels:
        picture = source.draw()
        row.copy_(pixels_of(picture))
        answers.append(picture.answer)
        found.append(facts_of(picture))
    facts = torch.tensor(found)
    print(f"{len(answers)} pictures, {time.time() - started:.0f} s", flush=True)
    model = make_model(arguments.model)
    AttentionInterface.register("causal", causal_attention)
    model.model.language_model.set_attn_implementation("causal")
    # For 16 tokens, attention written out takes a third of the fused kernel's time.
    model.model.vision_tower.set_attn_implementation("eager")
    if arguments.go_on:
        trained = vision_to_gguf.read(model.config, arguments.model / "mmproj.gguf")
        model.load_state_dict(trained, strict=False)
    else:
        train_tower(model, pixels, facts, arguments.first)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.model)
    loss = train(model, tokenizer, pixels, answers, arguments.steps, arguments.seed)
    parameters = save(model, arguments.model, arguments.out)
    training = {
        "pictures": arguments.pictures,
        "first_steps": 0 if arguments.go_on else arguments.first,
        "steps": arguments.steps,
        "loss": round(loss, 4),
        "parameters": parameters,
        "minutes": round((time.time() - started) / 60, 1),
        "cpu_minutes": round((time.process_time() - cpu) / 60, 1),
    }
    (arguments.out / "training.json").write_text(json.dumps(training, indent=2) + "\n")
    print(training)


def save(model: LlavaForConditionalGeneration, source: Path, out: Path) -> int:
    """Returns the number of parameters of tower and projector."""
    shutil.copytree(source, out, dirs_exist_ok=True)
    prefix = "model.language_model."
    weights = model.state_dict()
    text = {
        "model." + name.removeprefix(prefix): weight.to(torch.bfloat16).contiguous()
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
    save_file(text, out / "model.safetensors", metadata={"format": "pt"})
    vision_to_gguf.write(model.config, weights, out / "mmproj.gguf")
    return vision_to_gguf.parameters(model.config, weights)


def pixels_of(picture: Picture) -> Tensor:
    """What the model sees of it, as bytes."""
    return torch.from_numpy(np.array(seen(picture.image, SIZE))).permute(2, 0, 1)


def normal(pixels: Tensor) -> Tensor:
    mean = torch.tensor(vision_to_gguf.MEAN).view(3, 1, 1)
    std = torch.tensor(vision_to_gguf.STD).view(3, 1, 1)
    return (pixels / 255 - mean) / std


# -- the first part: the tower alone -------------------------------------------------------------

FACTS = [len(COLOURS), len(SHAPES) + 10, 4, len(COLOURS), len(SHAPES)]
"""The classes of a picture's colour, shape or digit, and count, and of the right thing's colour and shape."""


def facts_of(picture: Picture) -> list[int]:
    """IGNORED where there is no such fact. A picture of one colour has a colour, and the count 4."""
    names = list(COLOURS)
    if not picture.things:
        return [names.index(picture.background or ""), IGNORED, IGNORED, IGNORED, IGNORED]
    left = picture.things[0]
    shape = len(SHAPES) + int(left.shape) if left.shape.isdigit() else SHAPES.index(left.shape)
    found = [names.index(left.colour), shape, left.count - 1, IGNORED, IGNORED]
    if len(picture.things) == 2:
        right = picture.things[1]
        found[3:] = [names.index(right.colour), SHAPES.index(right.shape)]
    return found


def train_tower(
    model: LlavaForConditionalGeneration, pixels: Tensor, facts: Tensor, steps: int
) -> None:
    tower = model.model.vision_tower
    width = model.config.vision_config.hidden_size
    head = nn.Linear(TOKENS * width, sum(FACTS))
    optimizers = optimizers_of([(tower, FIRST_RATE), (head, FIRST_RATE)])
    mean, right, started = 0.0, 0.0, time.time()
    for step in range(steps):
        batch = torch.randint(len(pixels), (FIRST_BATCH,))
        set_rate(optimizers, rate(step, steps))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = tower(pixel_values=normal(pixels[batch])).last_hidden_state
        # The post-norm is not part of what the language model sees, but does no harm here.
        scores = head(hidden.float().flatten(1)).split(FACTS, 1)
        wanted = facts[batch]
        loss = sum(
            cross_entropy(score, wanted[:, fact], ignore_index=IGNORED)
            for fact, score in enumerate(scores)
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tower.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        hits = [
            (score.argmax(1) == wanted[:, fact]) | (wanted[:, fact] == IGNORED)
            for fact, score in enumerate(scores)
        ]
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        right = 0.98 * right + 0.02 * torch.stack(hits).all(0).float().mean().item()
        if step % 100 == 99:
            print(
                f"tower {step + 1}/{steps} loss {mean:.3f} right {right:.3f} {time.time() - started:.0f} s",
                flush=True,
            )


# -- the second part: through the language model -------------------------------------------------


def train(
    model: LlavaForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    pixels: Tensor,
    answers: list[str],
    steps: int,
    seed: int,
) -> float:
    """Returns the running mean of the loss."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    language_model = model.model.language_model
    modules = [(projector, RATE), (language_model, LANGUAGE_RATE), (tower, TOWER_RATE)]
    optimizers = optimizers_of(modules)
    learning = [p for module, _ in modules for p in module.parameters()]
    image = model.config.image_token_id
    short = batches(tokenizer, PictureDialogues(200 + 2 * seed, answers), image, SHORT)
    full = batches(tokenizer, PictureDialogues(201 + 2 * seed, answers), image, LONGEST)
    mean, right, started = 0.0, 0.0, time.time()
    for step in range(steps):
        ids, labels, shown = next(short if step < SHORT_SHARE * steps else full)
        set_rate(optimizers, rate(step, steps))
        scores, wanted = predict(model, ids, labels, pixels[shown])
        loss = cross_entropy(scores.float(), wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        hit = (scores.argmax(1) == wanted).float().mean().item()
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        right = hit if step == 0 else 0.98 * right + 0.02 * hit
        if step % 50 == 49:
            print(
                f"step {step + 1}/{steps} loss {mean:.4f} tokens right {right:.4f} {time.time() - started:.0f} s",
                flush=True,
            )
    return mean


def predict(
    model: LlavaForConditionalGeneration, ids: Tensor, labels: Tensor, pixels: Tensor
) -> tuple[Tensor, Tensor]:
    """Scores for each learnt token, and the token."""
    image = model.config.image_token_id
    with torch.autocast("cpu", dtype=torch.bfloat16):
        table = model.model.language_model.embed_tokens
        inputs = table(ids.masked_fill(ids == image, 0))
        if len(pixels):
            hidden = model.model.vision_tower(
                pixel_values=normal(pixels), output_hidden_states=True
            ).hidden_states[-1]
            embedded = model.model.multi_modal_projector(hidden)
            places = (ids == image).unsqueeze(-1).expand_as(inputs)
            inputs = inputs.masked_scatter(places, embedded.to(inputs.dtype))
        found = model.model.language_model(inputs_embeds=inputs, use_cache=False)
        learnt = labels[:, 1:] != IGNORED
        return model.lm_head(found.last_hidden_state[:, :-1][learnt]), labels[:, 1:][learnt]


def batches(
    tokenizer: PreTrainedTokenizerFast, source: PictureDialogues, image: int, longest: int
) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """Endless (ids, labels, pictures) of `BATCH` rows each, of about one length."""
    pad = tokenizer.pad_token_id
    while True:
        rows = encode(tokenizer, source, image, 64 * BATCH)
        rows = [row for row in rows if len(row[0]) <= longest]
        rows.sort(key=lambda row: len(row[0]))
        grouped = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
        source.m.random.shuffle(grouped)
        for group in grouped:
            width = -(-max(len(ids) for ids, _, _ in group) // WIDTH) * WIDTH
            ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _, _ in group])
            labels = torch.tensor([row + [IGNORED] * (width - len(row)) for _, row, _ in group])
            yield ids, labels, [picture for _, _, pictures in group for picture in pictures]


def encode(
    tokenizer: PreTrainedTokenizerFast, source: PictureDialogues, image: int, count: int
) -> list[Row]:
    drawn = [source.draw() for _ in range(count)]
    pieces = [
        [
            (part, index > 0, learnt)
            for text, learnt in prompts.pieces(shown.dialogue)
            for index, part in enumerate(text.split(MARK))
        ]
        for shown in drawn
    ]
    texts = [text for row in pieces for text, _, _ in row]
    encoded = iter(tokenizer.backend_tokenizer.encode_batch_fast(texts))
    rows: list[Row] = []
    for shown, row in zip(drawn, pieces, strict=True):
        ids: list[int] = []
        labels: list[int] = []
        for _, after_picture, learnt in row:
            part = next(encoded).ids
            picture = [image] * (TOKENS * after_picture)
            ids += picture + part
            labels += [IGNORED] * len(picture) + (part if learnt else [IGNORED] * len(part))
        rows.append((ids, labels, shown.pictures))
    return rows


def optimizers_of(rates: list[tuple[nn.Module, float]]) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the modules, AdamW for the rest."""
    groups: dict[bool, list[dict[str, object]]] = {True: [], False: []}
    for module, peak in rates:
        for matrix in (True, False):
            of_kind = [
                p
                for name, p in module.named_parameters()
                if p.requires_grad and (p.ndim == 2 and "embedding" not in name) == matrix
            ]
            if of_kind:
                groups[matrix].append({"params": of_kind, "lr": peak, "peak": peak})
    return [
        torch.optim.Muon(groups[True], weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups[False], betas=(0.9, 0.98), weight_decay=0),
    ]


def set_rate(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def rate(step: int, steps: int) -> float:
    """Warm-up, then a cosine to a fiftieth."""
    return min(1.0, (step + 1) / WARM_UP) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))


if __name__ == "__main__":
    main()
