"""Helpers shared by several engines: translation of constraints, and text processing. It contains and imports no
engine.

`xgrammar` translates constraint trees to what vLLM, SGLang and TensorRT-LLM enforce; `locate_error` finds the parameter that
an unenforceable constraint came from. `tokenizer` wraps Hugging Face tokenizers, `alignment` maps tokens to the bytes
that they add to a text, `stopping` finds stop strings.
"""
