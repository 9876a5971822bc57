"""Reading the images, sounds and documents of requests for prompts: loading, checking, decoding and encoding them
again.

`reader.py` has `MediaReader`, one for each process, which makes a `MediaResolver` (`resolver.py`) for each answer. For
documents there are `FileReader` (`file_reader.py`) and `FileResolver` (`file_resolver.py`). `PartResolver`
(`part_resolver.py`) combines the two resolvers of one answer.

All content that a part contains or refers to is untrusted. Sizes are checked before anything is decoded, URLs are
fetched through `gateway.base.net`, and files are decoded in helper processes with limits on memory and time.

Requires the packages `pillow` and, if images are fetched, `httpx2`: `litegate[media]`; for documents also `litegate[documents]`.
"""
