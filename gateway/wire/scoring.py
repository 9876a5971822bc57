"""Reranking (the shapes of Jina and Cohere) and scoring (vLLM's shape): the requests and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.base.errors import InvalidRequest, ParamPath, param_path, param_text
from gateway.wire.common import Value, Wire
from gateway.wire.decoding import convert, decode_object
from gateway.wire.field_errors import missing, wrong_type
from gateway.wire.parameter_table import RERANK, SCORE
from gateway.wire.sampling import MAX_INT


class ScoringLimits(Struct, frozen=True):
    """Limits on one request."""

    max_pairs: int
    max_bytes: int
    """Maximum size of all pairs together in UTF-8. The query counts once per document."""


class ScoringParameters(Wire, kw_only=True):
    """The parameters that both APIs share."""

    model: str | None = None
    user: str | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None
    """Truncate each pair to this many tokens; -1: to the model's maximum."""
    max_tokens_per_doc: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    """Truncate each document to this many tokens; 0 means no limit, as in vLLM."""


class RerankRequest(ScoringParameters, kw_only=True):
    """The body of `POST /v1/rerank`."""

    top_n: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    """Number of results; None and 0: all."""
    return_documents: bool = True
    query: str = ""
    documents: list[str] = []
    unknown: list[str] = []
    """Names of unknown parameters."""


class ScoreTextsRequest(ScoringParameters, kw_only=True):
    """The body of `POST /v1/score`."""

    queries: list[str] = []
    """As many queries as documents, or one query for all documents."""
    documents: list[str] = []
    names: tuple[str, str] = ("queries", "documents")
    """The request's names for queries and documents."""
    several: tuple[bool, bool] = (False, False)
    """For queries and for documents: whether the request has a list of them."""
    unknown: list[str] = []
    """Names of unknown parameters."""


_NAMES = (
    ("queries", "documents"),
    ("queries", "items"),
    ("text_1", "text_2"),
    ("data_1", "data_2"),
)
_TEXTS = frozenset(name for pair in _NAMES for name in pair)
_WHAT = "a string or an object with a text"


def decode_rerank_request(body: bytes, limits: ScoringLimits) -> RerankRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter."""
    raw = decode_object(body)
    given = {key: value for key, value in raw.items() if value is not None}
    RERANK.refuse(given)
    query, documents = given.pop("query", None), given.pop("documents", None)
    request = convert(
        {name: value for name, value in given.items() if name in RERANK.known}, RerankRequest
    )
    if query is None:
        raise missing("query", "Send the text that the documents are compared with.")
    request.query = _text(query, ("query",))
    if documents is None:
        raise missing("documents", "Send a list of texts.")
    if not isinstance(documents, list):
        raise wrong_type("documents", "an array", documents)
    request.documents = _texts(documents, "documents", limits.max_pairs)
    _check_bytes([request.query], request.documents, "documents", limits.max_bytes)
    request.unknown = sorted(raw.keys() - RERANK.known)
    return request


def decode_score_request(body: bytes, limits: ScoringLimits) -> ScoreTextsRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter."""
    raw = decode_object(body)
    given = {key: value for key, value in raw.items() if value is not None}
    SCORE.refuse(given)
    one, other = names = next(
        (pair for pair in _NAMES if all(name in given for name in pair)),
        next((pair for pair in _NAMES if any(name in given for name in pair)), _NAMES[0]),
    )
    for name in names:
        if name not in given:
            raise missing(name, f"Send {one} and {other}, each a string or a list of strings.")
    known = SCORE.known - _TEXTS
    request = convert(
        {name: value for name, value in given.items() if name in known}, ScoreTextsRequest
    )
    queries, documents = given[one], given[other]
    request.names = names
    request.several = (isinstance(queries, list), isinstance(documents, list))
    request.queries, request.documents = (
        _texts(each, name, limits.max_pairs) if isinstance(each, list) else [_text(each, (name,))]
        for name, each in ((one, queries), (other, documents))
    )
    if len(request.queries) not in (1, len(request.documents)):
        raise InvalidRequest(
            f"Invalid '{one}': there are {len(request.queries)}, and {len(request.documents)} in '{other}'. Send one for "
            "all, or as many.",
            param=one,
            code="invalid_value",
        )
    _check_bytes(request.queries, request.documents, other, limits.max_bytes)
    request.unknown = sorted(raw.keys() - known - {one, other})
    return request


def _texts(raw: list[Any], name: str, most: int) -> list[str]:
    if not raw:
        raise InvalidRequest(
            f"Invalid '{name}': empty array. Send at least one text.",
            param=name,
            code="empty_array",
        )
    if len(raw) > most:
        raise InvalidRequest(
            f"Invalid '{name}': at most {most} texts can be scored at once, and these are {len(raw)}. Send several "
            "requests.",
            param=name,
            code="array_above_max_length",
        )
    return [_text(each, (name, index)) for index, each in enumerate(raw)]


def _text(raw: Any, param: ParamPath) -> str:
    """Return a text, or the text of an object: Jina and Cohere accept documents in both forms."""
    if isinstance(raw, dict):
        if "text" not in raw:
            raise wrong_type(param, _WHAT, raw)
        raw, param = raw["text"], (*param, "text")
    if not isinstance(raw, str):
        raise wrong_type(param, _WHAT if param[-1] != "text" else "a string", raw)
    if not raw.strip():
        raise InvalidRequest(
            f"Invalid '{param_text(param_path(param))}': empty string. A text has at least one character that is not white "
            "space.",
            param=param,
            code="empty_string",
        )
    return raw


def _check_bytes(queries: list[str], documents: list[str], name: str, most: int) -> None:
    one = sum(map(_size, queries))
    total = sum(map(_size, documents)) + (one * len(documents) if len(queries) == 1 else one)
    if total > most:
        raise InvalidRequest(
            f"Invalid '{name}': all pairs together have {total} bytes, and at most {most} can be scored at once; a query "
            "counts once per document. Send several requests.",
            param=name,
            code="string_above_max_length",
        )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class ScoringUsage(Value, frozen=True, kw_only=True):
    prompt_tokens: int
    total_tokens: int


class RerankDocument(Value, frozen=True, kw_only=True):
    text: str


class RerankResult(Value, frozen=True, kw_only=True):
    """One document. `index` is its index in the request."""

    index: int
    relevance_score: float
    document: RerankDocument | UnsetType = UNSET


class RerankAnswer(Value, frozen=True, kw_only=True):
    """The answer to `/v1/rerank`, best first."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RerankResult]
    usage: ScoringUsage


class Score(Value, frozen=True, kw_only=True):
    """One pair's score. `index` is its index in the request."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(Value, frozen=True, kw_only=True):
    """The answer to `/v1/score`, in the order of the request."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: ScoringUsage
