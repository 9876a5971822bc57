"""The Lua scripts, each of which Redis executes atomically. Each file describes its arguments and result."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files


class Script:
    """A file of `lua/`, and the digest by which Redis knows it once it was run."""

    __slots__ = ("digest", "source")

    def __init__(self, name: str) -> None:
        self.source = (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")
        self.digest = sha1(self.source.encode(), usedforsecurity=False).hexdigest()


PUT = Script("put")
ADOPT = Script("adopt")
TOUCH = Script("touch")
DELETE = Script("delete")
FORSAKE = Script("forsake")
SEGMENTS = Script("segments")
LEDGER = Script("ledger")
APPEND = Script("append")
PAGE = Script("page")
STATE = Script("state")
LEASE = Script("lease")
RELEASE = Script("release")
TAKE = Script("take")
WAKE = Script("wake")
CONVERSATION_PUT = Script("conversation_put")
CONVERSATION_APPEND = Script("conversation_append")
CONVERSATION_PAGE = Script("conversation_page")
CONVERSATION_ITEM = Script("conversation_item")
COMPLETION_PUT = Script("completion_put")
COMPLETION_UPDATE = Script("completion_update")
COMPLETION_DELETE = Script("completion_delete")
COMPLETIONS_ADD = Script("completions_add")
COMPLETIONS_PAGE = Script("completions_page")
FIELDS = Script("fields")
OWNED = Script("owned")
ITEMS_PUT = Script("items_put")
ITEMS_FIND = Script("items_find")
ITEMS_DROP = Script("items_drop")
VALUE = Script("value")
LIMIT_ADMIT = Script("limit_admit")
LIMIT_SETTLE = Script("limit_settle")
LIMIT_RENEW = Script("limit_renew")
USAGE_ADD = Script("usage_add")
