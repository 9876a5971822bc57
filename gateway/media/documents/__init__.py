"""Extracting the text of users' documents: text files, HTML, PDF and Office documents.

`reader.py` has `DocumentReader`, which extracts text in helper processes with limits on memory and time. The other
modules run in these processes. Requires the packages `lxml` and `pypdfium2`: `litegate[documents]`.
"""
