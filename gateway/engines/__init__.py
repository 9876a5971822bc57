"""Helpers shared by several engines: translation of constraints, and text processing. This package neither contains nor
imports an engine.

`xgrammar` translates constraint trees to the arguments by which vLLM, SGLang and TensorRT-LLM enforce them;
`locate_error` finds the parameter from which an unenforceable constraint comes. `tokenizer` wraps Hugging Face
tokenizers, `alignment` maps tokens to the bytes that they add to a text, and `stopping` finds stop strings.
"""
