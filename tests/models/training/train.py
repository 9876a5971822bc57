"""Trains the tiny model from scratch on two CPU cores, in under half an hour.

usage: python train.py OUTDIR [--steps N]

Everything follows from the seed and the number of steps, never from the clock. OUTDIR receives what vLLM and
transformers load (bf16 safetensors, tokenizer, chat template) and `training.json`, what the training took.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import prompts
import torch
from dialogues import Dialogues
from tokenizer import VOCABULARY, make_tokenizer
from torch.nn.functional import cross_entropy
from transformers import (
    AttentionInterface,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

STEPS = 4600
SHORT_SHARE = 0.12
"""The share of steps on short dialogues, at the start."""
WARM_UP = 100
RATE = 3e-3
BATCH_TOKENS = 3072
WIDTH = 16
"""Rows are padded to a multiple of this, which the CPU kernels like."""
POOL = 6000
"""Dialogues sorted by length at a time, so that a batch needs little padding."""
IGNORED = -100

Row = tuple[list[int], list[int]]
"""Token ids, and the labels: the same where the model is to learn, IGNORED elsewhere."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    prompts.check_template()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    started, cpu = time.time(), time.process_time()
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    tokens, loss = train(model, tokenizer, arguments.steps)
    save(model, tokenizer, arguments.out)
    training = {
        "steps": arguments.steps,
        "tokens": tokens,
        "loss": round(loss, 4),
        "parameters": sum(p.numel() for p in model.parameters()),
        "minutes": round((time.time() - started) / 60, 1),
        "cpu_minutes": round((time.process_time() - cpu) / 60, 1),
    }
    (arguments.out / "training.json").write_text(json.dumps(training, indent=2) + "\n")
    print(training)


def causal_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention written out. On a CPU, rows this short take half as long as with the fused kernel.

    Padding is at the end of rows and carries no loss, so the causal mask is all that is needed.
    """
    length = query.shape[2]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = torch.matmul(query * scaling, key.transpose(2, 3)).masked_fill(future, float("-inf"))
    return torch.matmul(scores.softmax(-1), value).transpose(1, 2).contiguous(), None


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=5,
        num_key_value_heads=5,
        head_dim=32,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    AttentionInterface.register("causal", causal_attention)
    model.set_attn_implementation("causal")
    model.model.compile(dynamic=True)
    return model


def train(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int
) -> tuple[int, float]:
    """Returns the tokens seen, padding included, and the running mean of the loss."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=RATE, betas=(0.9, 0.98), weight_decay=0),
    ]
    source = Dialogues(100)
    short = batches(tokenizer, source, short=True)
    full = batches(tokenizer, source, short=False)
    tokens, mean, started = 0, 0.0, time.time()
    for step in range(steps):
        ids, labels = next(short if step < SHORT_SHARE * steps else full)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = RATE * _rate(step, steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
            learnt = labels[:, 1:] != IGNORED
            logits = model.lm_head(hidden[learnt])
        loss = cross_entropy(logits.float(), labels[:, 1:][learnt])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += ids.numel()
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        if step % 50 == 49:
            seconds = time.time() - started
            print(
                f"step {step + 1}/{steps} loss {mean:.4f} {tokens / seconds:.0f} tokens/s",
                flush=True,
            )
    return tokens, mean


def _rate(step: int, steps: int) -> float:
    """Warm-up, then a cosine to a fiftieth."""
    return min(1.0, (step + 1) / WARM_UP) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))


def batches(
    tokenizer: PreTrainedTokenizerFast, source: Dialogues, *, short: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids, labels) of about `BATCH_TOKENS` each, padded to the longest row."""
    while True:
        rows = encode(tokenizer, [prompts.pieces(source.draw(short=short)) for _ in range(POOL)])
        rows.sort(key=lambda row: len(row[0]))
        grouped: list[list[Row]] = [[]]
        for row in rows:
            if len(row[0]) * (len(grouped[-1]) + 1) > BATCH_TOKENS:
                grouped.append([])
            grouped[-1].append(row)
        source.m.random.shuffle(grouped)
        for group in grouped:
            width = -(-max(len(ids) for ids, _ in group) // WIDTH) * WIDTH
            pad = tokenizer.pad_token_id
            ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group])
            labels = torch.tensor([row + [IGNORED] * (width - len(row)) for _, row in group])
            yield ids, labels


def encode(tokenizer: PreTrainedTokenizerFast, dialogues: list[prompts.Pieces]) -> list[Row]:
    texts = [text for pieces in dialogues for text, _ in pieces]
    encoded = iter(tokenizer.backend_tokenizer.encode_batch_fast(texts))
    rows: list[Row] = []
    for pieces in dialogues:
        ids: list[int] = []
        labels: list[int] = []
        for _, learnt in pieces:
            part = next(encoded).ids
            ids += part
            labels += part if learnt else [IGNORED] * len(part)
        rows.append((ids, labels))
    return rows


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    model = model.to(torch.bfloat16)
    model.config.dtype = "bfloat16"
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.3,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
