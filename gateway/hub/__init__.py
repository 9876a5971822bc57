"""Models by name: the repositories of a Hugging Face hub, and the local cache that all of its libraries share.

Downloading requires the package `huggingface_hub`: a plugin that downloads depends on `litegate[hub]`.
"""
