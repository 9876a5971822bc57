"""Answers: one life cycle for all APIs, and what each API makes of an answer.

`answer` has the life cycle. `responses`, `chat`, `completions` and `apis` are its outputs; `embeddings` and `scoring` are answers
without generations.
"""
