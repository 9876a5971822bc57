"""Finding models by name: in the repositories of a Hugging Face hub, and in the local cache that all libraries of the
hub share.

Downloading requires the package `huggingface_hub`: a plugin that downloads depends on `litegate[hub]`.
"""
