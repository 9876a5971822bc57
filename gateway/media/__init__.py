"""From the parts of a request to the images, sounds and texts of a prompt: loading, checking, decoding and encoding anew.

`reader.py` has `MediaReader`, one for the process, which makes a `MediaResolver` (`resolver.py`) for each answer. Documents have
`FileReader` (`file_reader.py`) and `FileResolver` (`file_resolver.py`). `PartResolver` (`part_resolver.py`) is both, for one answer.
Everything that a part names is hostile. Sizes are checked before anything is decoded, URLs are fetched through
`gateway.net`, and files are decoded in helper processes with limits on memory and time.

Requires the packages `pillow` and, if images are fetched, `httpx2`: `litegate[media]`; for documents also `litegate[documents]`.
"""
