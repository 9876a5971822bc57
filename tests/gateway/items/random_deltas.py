"""Random deltas of whole answers, and the roles of the tools that they call."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.tools.roles import CallRole

ROLES = {
    "client_fn": CallRole(),
    "custom": CallRole(item_type="custom_tool_call"),
    "spaced": CallRole(namespace="ns", shown_name="inner"),
    "served": CallRole(item_type="mcp_call", server_label="tools"),
    "python": CallRole(item_type="code_interpreter_call", server_label="cntr_1"),
    "search": CallRole(item_type="web_search_call"),
    "shell": CallRole(item_type="shell_call"),
    "local_shell": CallRole(item_type="local_shell_call"),
    "apply_patch": CallRole(item_type="apply_patch_call"),
    "tool_search": CallRole(item_type="tool_search_call"),
}
TEXT = st.text(min_size=1, max_size=8)


@st.composite
def calls(draw: st.DrawFn) -> list[Delta]:
    name = draw(st.sampled_from([*ROLES, "unknown"]))
    arguments = draw(
        st.one_of(
            st.lists(TEXT, max_size=3),
            TEXT.map(lambda t: [json.dumps({"input": t, "code": t})]),
            TEXT.map(lambda t: ['{"input": ', json.dumps(t), "}"]),
            st.lists(TEXT).map(lambda t: ['{"commands": ', json.dumps(t), ', "command": ["ls"]}']),
            st.sampled_from(["create_file", "delete_file"]).map(
                lambda t: [json.dumps({"type": t, "path": "p", "diff": "+x"})]
            ),
        )
    )
    return [CallStarted(name), *map(CallArgumentsDelta, arguments), CallEnded()]


BLOCK = st.one_of(
    TEXT.map(lambda t: [TextDelta(t)]),
    TEXT.map(lambda t: [ReasoningDelta(t)]),
    TEXT.map(lambda t: [RefusalDelta(t)]),
    st.sampled_from(["commentary", "final_answer", None]).map(lambda p: [MessageStarted(p)]),
    st.just([BlockEnded()]),
    calls(),
)
DELTAS = st.lists(BLOCK, max_size=10).map(lambda blocks: [d for block in blocks for d in block])
