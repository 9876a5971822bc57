"""Checks of stored responses, chains of responses, background responses and conversations."""

from __future__ import annotations

from gateway_conform.checks.asking import respond, respond_streamed, stored, wait_for
from gateway_conform.checks.refusals import require_error
from gateway_conform.client import Json
from gateway_conform.outcome import CheckSkipped, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.response_stream import TERMINAL

LONG = "Count from one to one thousand, in words."


@check("lifecycle", "a stored response is retrieved as it was answered")
def retrieve(server: ServerUnderTest) -> None:
    response = stored(server)
    again = server.client.get(f"/responses/{response['id']}").expect()
    require(again == response, "the retrieved response differs")


@check("lifecycle", "a response that is not to be stored cannot be retrieved")
def not_stored(server: ServerUnderTest) -> None:
    response = respond(server, store=False)
    require_error(server.client.get(f"/responses/{response['id']}"), 404)


@check("lifecycle", "a deleted response is gone")
def delete(server: ServerUnderTest) -> None:
    response = stored(server)
    path = f"/responses/{response['id']}"
    deleted = server.client.delete(path).expect()
    require(deleted["deleted"] is True, f"the answer is {deleted}")
    require(deleted["id"] == response["id"], f"the answer is {deleted}")
    require_error(server.client.get(path), 404)
    require_error(server.client.delete(path), 404)


@check("lifecycle", "input items are listed, in both orders and by pages")
def input_items(server: ServerUnderTest) -> None:
    stored(server)
    texts = ["Hello", "Hello! How can I help?", "What is the capital of France?"]
    roles = ["user", "assistant", "user"]
    asked = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    path = f"/responses/{respond(server, input=asked, store=True)['id']}/input_items"
    listed = server.client.get(f"{path}?order=asc").expect()
    require(listed["object"] == "list", f"object is {listed['object']!r}")
    found = [item["content"][0]["text"] for item in listed["data"]]
    require(found == texts, f"the items are {found}")
    backwards = server.client.get(f"{path}?order=desc").expect()["data"]
    require(backwards == listed["data"][::-1], "order=desc is not the reverse of order=asc")
    require(server.client.get(path).expect()["data"] == backwards, "the default is not order=desc")
    page = server.client.get(f"{path}?order=asc&limit=2").expect()
    require(page["has_more"] is True, "has_more is not true")
    require(page["first_id"] == page["data"][0]["id"], "first_id is not the first item's")
    require(page["last_id"] == page["data"][1]["id"], "last_id is not the last item's")
    rest = server.client.get(f"{path}?order=asc&limit=2&after={page['last_id']}").expect()
    require(page["data"] + rest["data"] == listed["data"], "the pages are not the whole")
    require(rest["has_more"] is False, "has_more is not false at the end")


@check("lifecycle", "previous_response_id continues a conversation")
def chain(server: ServerUnderTest) -> None:
    first = stored(server)
    second = respond(server, input="And of Italy?", previous_response_id=first["id"])
    require(second["previous_response_id"] == first["id"], "the response names no previous one")
    alone = respond(server, input="And of Italy?")
    more = second["usage"]["input_tokens"], alone["usage"]["input_tokens"]
    require(more[0] > more[1], f"its input has {more[0]} tokens, and alone it has {more[1]}")


@check("lifecycle", "an unknown previous_response_id is refused by that name")
def unknown_previous(server: ServerUnderTest) -> None:
    body = {"model": server.model, "input": "Hello", "previous_response_id": "resp_" + "0" * 48}
    answer = server.client.post("/responses", body)
    require_error(
        answer, 400, 404, param="previous_response_id", code="previous_response_not_found"
    )


@check("lifecycle", "unknown responses are 404")
def unknown(server: ServerUnderTest) -> None:
    path = f"/responses/resp_{'0' * 48}"
    require_error(server.client.get(path), 404)
    require_error(server.client.delete(path), 404)
    require_error(server.client.get(f"{path}/input_items"), 404)
    require_error(server.client.post(f"{path}/cancel", {}), 404)


def _background(server: ServerUnderTest, **fields: Json) -> Json:
    body = {"model": server.model, "input": "Hello", "background": True, "max_output_tokens": 64}
    answer = server.client.post("/responses", {**body, **fields})
    if answer.status == 400:
        raise CheckSkipped("the server has no background responses")
    return answer.expect()


@check("lifecycle", "a background response is answered at once and can be waited for")
def background(server: ServerUnderTest) -> None:
    response = _background(server)
    require(response["status"] in ("queued", "in_progress"), f"status is {response['status']!r}")
    require(response["background"] is True, "background is not true")
    done = wait_for(server, response["id"])
    require(done["status"] in ("completed", "incomplete"), f"it ends as {done['status']!r}")
    require(done["output"], "it has no output")


@check("lifecycle", "a background response is cancelled")
def cancel(server: ServerUnderTest) -> None:
    response = _background(server, input=LONG, max_output_tokens=4000)
    path = f"/responses/{response['id']}/cancel"
    cancelled = server.client.post(path, {}).expect()
    ended = wait_for(server, response["id"])
    if ended["status"] == "completed":
        raise CheckSkipped("the response was complete before it could be cancelled")
    require(cancelled["status"] in ("cancelled", "in_progress"), f"{cancelled['status']!r}")
    require(ended["status"] == "cancelled", f"it ends as {ended['status']!r}")
    again = server.client.post(path, {}).expect()
    require(again["status"] == "cancelled", "cancelling again gives another status")


@check("lifecycle", "only background responses are cancelled")
def cancel_foreground(server: ServerUnderTest) -> None:
    response = stored(server)
    require_error(server.client.post(f"/responses/{response['id']}/cancel", {}), 400)


@check("lifecycle", "a background stream is resumed after any event")
def resume(server: ServerUnderTest) -> None:
    _background(server)
    events = respond_streamed(server, background=True, store=True)
    path = f"/responses/{events[0]['response']['id']}?stream=true"
    require(server.client.get(path).events() == events, "the stream from its beginning differs")
    middle = len(events) // 2
    rest = server.client.get(f"{path}&starting_after={middle}").events()
    require(rest == events[middle + 1 :], f"the stream after event {middle} differs")
    require(rest[-1]["type"] in TERMINAL, "the resumed stream has no end")


@check("lifecycle", "conversations keep the items of their responses")
def conversation(server: ServerUnderTest) -> None:
    answer = server.client.post("/conversations", {"metadata": {"topic": "test"}})
    if answer.status in (404, 405):
        raise CheckSkipped("the server has no conversations")
    made = answer.expect()
    require(made["object"] == "conversation", f"object is {made['object']!r}")
    path = f"/conversations/{made['id']}"
    require(server.client.get(path).expect() == made, "the retrieved conversation differs")
    response = respond(server, input="Hello", conversation=made["id"])
    require(response["conversation"]["id"] == made["id"], "the response names another conversation")
    items = server.client.get(f"{path}/items?order=asc").expect()["data"]
    kinds = [item["type"] for item in items]
    require(kinds[0] == "message", f"the items are {kinds}")
    require(items[0]["role"] == "user", f"the first item is {items[0]}")
    require(items[1:] == response["output"], "the items are not the response's output")
    changed = server.client.post(path, {"metadata": {"topic": "other"}}).expect()
    require(changed["metadata"] == {"topic": "other"}, f"the metadata is {changed['metadata']}")
    deleted = server.client.delete(path).expect()
    require(deleted["deleted"] is True, f"the answer is {deleted}")
    require_error(server.client.get(path), 404)
