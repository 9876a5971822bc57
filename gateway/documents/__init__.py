"""The text of documents of users: text files, HTML, PDF and Office documents.

`reader.py` has `DocumentReader`, which extracts text in helper processes with limits on memory and time; the other modules
run there. Requires the packages `lxml` and `pypdfium2`: `litegate[documents]`.
"""
