"""Helpers for engines: stop strings, tokenizers, alignment of text and tokens, vectors."""

from gateway.engines.alignment import (
    Piece,
    ScoredToken,
    TextAligner,
    as_prompt,
    scored,
)
from gateway.engines.compiling import (
    Compiler,
    compiled,
    decoded,
    encoded,
)
from gateway.engines.embedding_only import (
    EmbeddingOnly,
    checked_tokens,
    only_embeds,
)
from gateway.engines.engine_arguments import check_engine_arguments
from gateway.engines.estimates import estimated_tokens
from gateway.engines.hugging_face import (
    PROCESSOR_TEMPLATE,
    ChatTemplates,
    chat_template_of,
    chat_templates_of,
    ending_tokens,
    first_problem,
    named_templates,
    recommended_sampling,
    special_token,
    with_processor_template,
)
from gateway.engines.locate_error import (
    locate_error,
)
from gateway.engines.media_text import (
    MediaText,
)
from gateway.engines.origins import (
    Origin,
    OriginEncoder,
    Part,
)
from gateway.engines.placeholders import (
    check_images,
    placeholder_ids,
)
from gateway.engines.request_checks import context_exceeded, prompt_tokens, unknown_adapter
from gateway.engines.scoring_only import (
    ScoringOnly,
    only_scores,
)
from gateway.engines.small import (
    is_small,
)
from gateway.engines.stopping import (
    StopStrings,
)
from gateway.engines.text_search import any_of, found_in
from gateway.engines.token_bytes import (
    byte_level_alphabet,
    token_reader,
)
from gateway.engines.token_cache import (
    TokenCache,
)
from gateway.engines.tokenizer import (
    HfTokenizer,
)
from gateway.engines.translations import (
    Translations,
)
from gateway.engines.trials import (
    Trials,
)
from gateway.engines.vectors import (
    bytes_of,
    normalized,
    shortened,
    vector_of_bytes,
    vector_of_json,
)
from gateway.engines.xgrammar import (
    Enforcement,
    structured_outputs,
)
from gateway.wire.content import LOWEST_LOGPROB

__all__ = [
    "LOWEST_LOGPROB",
    "PROCESSOR_TEMPLATE",
    "ChatTemplates",
    "Compiler",
    "EmbeddingOnly",
    "Enforcement",
    "HfTokenizer",
    "MediaText",
    "Origin",
    "OriginEncoder",
    "Part",
    "Piece",
    "ScoredToken",
    "ScoringOnly",
    "StopStrings",
    "TextAligner",
    "TokenCache",
    "Translations",
    "Trials",
    "any_of",
    "as_prompt",
    "byte_level_alphabet",
    "bytes_of",
    "chat_template_of",
    "chat_templates_of",
    "check_engine_arguments",
    "check_images",
    "checked_tokens",
    "compiled",
    "context_exceeded",
    "decoded",
    "encoded",
    "ending_tokens",
    "estimated_tokens",
    "first_problem",
    "found_in",
    "is_small",
    "locate_error",
    "named_templates",
    "normalized",
    "only_embeds",
    "only_scores",
    "placeholder_ids",
    "prompt_tokens",
    "recommended_sampling",
    "scored",
    "shortened",
    "special_token",
    "structured_outputs",
    "token_reader",
    "unknown_adapter",
    "vector_of_bytes",
    "vector_of_json",
    "with_processor_template",
]
