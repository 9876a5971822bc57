"""The store `redis`: responses, event logs, leases, conversations and chat completions in one Redis, for any number of gateways.

Keys, with the prefix `litegate`; what is in braces is the hash tag, so that all of one response is in one slot of a cluster
and is written by one script:

`litegate:{resp_…}`, a hash: the record.
    s status, o owner, m the record without items, i input items, u output items, h ids of all items, t the call that wrote it last;
    r the results of its calls, where it has any;
    p parent, a ids of all ancestors from the oldest on, b "1" where they are lost;
    n number of events, z that the log has ended, w the call that appended last.
`litegate:{resp_…}:events`, a stream: the event log.
    One entry for each append, with a field `e` for each event and a field `end` if it is the last. An entry's id is the
    number of events that the log has with it: what follows event N is what has an id above (N + 1)-0.
    In place of a log that was deleted while it was written stands, for a minute, an entry `gone`.
`litegate:{resp_…}:children`, a set: the responses that continue this one.
    While there are any, deletion leaves i, u, r, p and a in the record; the last child that goes takes them along.
`litegate:item:{msg_…}:=owner`, a sorted set: the last few of an owner's responses that hold an item, by time.
`litegate:{index}`, a sorted set: finished responses by time, to evict the oldest beyond a number.
`litegate:{leases}`, a sorted set: responses by the time at which their lease runs out (Redis' clock, ms);
    `litegate:{leases}:holders`, a hash: who has the lease.
`litegate:{cancel}`, a stream: requests to cancel, from anybody to everybody.
`litegate:{wake}:…`, a stream for each process, by which it ends its own blocking read.
`litegate:conversation:{conv_…}`, a hash: o owner, m the conversation, n items added so far;
    `…:items`, a hash of items by id; `…:order`, a sorted set of ids.
`litegate:completion:{chatcmpl-…}`, a hash: o owner, n model, k metadata, d the completion with its messages.
`litegate:completions:=owner`, a sorted set: an owner's completions by time, of which no two are the same;
    `litegate:{completions}`, a sorted set: all by time, to evict the oldest beyond a number.

All keys of a response live equally long: for ever while it runs, then for `ttl`. Whoever continues it has all its ancestors
live a little longer than itself. A completion lives for `ttl`. Values are msgpack, or JSON in completions, after one byte that is the version of their form.
"""

from gateway_redis.config import RedisConfig
from gateway_redis.plugin import gateway_register_stores, open_redis

__all__ = ["RedisConfig", "gateway_register_stores", "open_redis"]
