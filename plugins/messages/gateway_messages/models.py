"""The list of models in the format of this API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from gateway.sdk import InvalidRequest, ListedModel
from gateway.sdk.wire import Value

DEFAULT_LIMIT, MAX_LIMIT = 20, 1000


class ModelInfo(Value, frozen=True, kw_only=True):
    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None
    max_tokens: int | None


class ModelPage(Value, frozen=True, kw_only=True):
    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None


def model_info(model: ListedModel) -> ModelInfo:
    return ModelInfo(
        id=model.name,
        display_name=model.name,
        created_at=datetime.fromtimestamp(model.created, UTC),
        max_input_tokens=model.max_model_len,
        max_tokens=model.max_model_len,
    )


def model_page(models: Sequence[ListedModel], query: Mapping[str, str]) -> ModelPage:
    """The page selected by `limit`, `after_id` and `before_id`."""
    limit = _limit(query.get("limit", str(DEFAULT_LIMIT)))
    names = [model.name for model in models]
    start, end = 0, len(models)
    if (after := query.get("after_id")) is not None:
        start = _place(after, names, "after_id") + 1
    if (before := query.get("before_id")) is not None:
        end = _place(before, names, "before_id")
    if before is not None and after is None:
        shown = models[max(start, end - limit) : end]
    else:
        shown = models[start : min(end, start + limit)]
    return ModelPage(
        data=[model_info(model) for model in shown],
        has_more=len(shown) < end - start,
        first_id=shown[0].name if shown else None,
        last_id=shown[-1].name if shown else None,
    )


def _limit(written: str) -> int:
    if not written.isdecimal() or not 1 <= int(written[:9]) <= MAX_LIMIT:
        raise InvalidRequest(f"'limit' is a number from 1 to {MAX_LIMIT}.", param="limit")
    return int(written)


def _place(name: str, names: Sequence[str], param: str) -> int:
    if name not in names:
        raise InvalidRequest(f"There is no model '{name}'.", param=param)
    return names.index(name)
