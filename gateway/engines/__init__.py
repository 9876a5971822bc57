"""What several engines have in common: translations and text work. No engine is here, and none is imported.

`xgrammar` says constraint trees as vLLM, SGLang and TensorRT-LLM enforce them, `blame` whose fault an unenforceable one
is. `tokenizer` reads Hugging Face tokenizers, `alignment` gives tokens the bytes that they add to a text, `stopping` finds
stop strings.
"""
