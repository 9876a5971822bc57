"""Grammars in GBNF, the language of llama.cpp's sampler: written from constraints, read from requests, and checked for their cost.

`constraints.to_gbnf` writes one; `ambiguity.check_ambiguity` refuses what would make each token slow.
"""
