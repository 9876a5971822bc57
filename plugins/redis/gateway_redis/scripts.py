"""The Lua scripts, each of which Redis executes atomically. Each file describes its arguments and result."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files


class LuaScript:
    """A script in `lua/`, with its SHA-1 digest, by which Redis runs a script that it has cached."""

    __slots__ = ("digest", "source")

    def __init__(self, name: str) -> None:
        self.source = (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")
        self.digest = sha1(self.source.encode(), usedforsecurity=False).hexdigest()


RIGHTS = LuaScript("rights")
PUT = LuaScript("put")
ADOPT = LuaScript("adopt")
TOUCH = LuaScript("touch")
DELETE = LuaScript("delete")
FORSAKE = LuaScript("forsake")
SEGMENTS = LuaScript("segments")
LEDGER = LuaScript("ledger")
APPEND = LuaScript("append")
PAGE = LuaScript("page")
STATE = LuaScript("state")
LEASE = LuaScript("lease")
RELEASE = LuaScript("release")
TAKE = LuaScript("take")
WAKE = LuaScript("wake")
CONVERSATION_PUT = LuaScript("conversation_put")
CONVERSATION_APPEND = LuaScript("conversation_append")
CONVERSATION_PAGE = LuaScript("conversation_page")
CONVERSATION_ITEM = LuaScript("conversation_item")
COMPLETION_PUT = LuaScript("completion_put")
COMPLETION_UPDATE = LuaScript("completion_update")
COMPLETION_DELETE = LuaScript("completion_delete")
COMPLETIONS_ADD = LuaScript("completions_add")
COMPLETIONS_PAGE = LuaScript("completions_page")
FIELDS = LuaScript("fields")
OWNED = LuaScript("owned")
ITEMS_PUT = LuaScript("items_put")
ITEMS_FIND = LuaScript("items_find")
ITEMS_DROP = LuaScript("items_drop")
VALUE = LuaScript("value")
LIMIT_ADMIT = LuaScript("limit_admit")
LIMIT_SETTLE = LuaScript("limit_settle")
LIMIT_RENEW = LuaScript("limit_renew")
USAGE_ADD = LuaScript("usage_add")
PART_HOLD = LuaScript("part_hold")
PART_LEAVE = LuaScript("part_leave")
PART_TOUCH = LuaScript("part_touch")
