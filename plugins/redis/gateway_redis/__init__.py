"""The store `redis`: responses, event logs, leases, conversations and chat completions in one Redis, for any number of gateways.

Keys are shown with the prefix `litegate`. The part in braces is the hash tag: all keys of one response are in one slot of a
cluster, so that one script can write them.

`litegate:{resp_…}`, a hash: the record.
    s status, o owner, m the record without items, i input items, u output items, h ids of all items, t the token of the last call that wrote it;
    r the results of its tool calls, if any; x the uses of large parts that are stored apart, if any: a token, bytes, and their names;
    p parent, a ids of all ancestors (oldest first), b "1" if ancestors were missing;
    n number of events, z set once the log has ended, w the token of the last call that appended.
`litegate:{resp_…}:events`, a stream: the event log.
    One entry for each append, with a field `e` for each event, and a field `end` in the last one. The id of an entry is the
    length of the log after it: the entries after event N are those with an id above (N + 1)-0.
    A log that was deleted while it was written is replaced by an entry `gone` for a minute.
`litegate:{resp_…}:children`, a set: the responses that continue this one.
    While there are any, deleting the response keeps i, u, r, p and a in the record; they are removed with the last child.
`litegate:part:{SHA-256=owner}`, a hash: an image, sound or file in base64 that an owner's responses have. d data, b the response
    with which it is counted. `…:uses`, a sorted set: the responses that have it, each with the token of the write, by the
    time of the write, or when they were last seen to be there (ms). Those that have expired are removed as others are added.
`litegate:item:{msg_…}:=owner`, a sorted set: the owner's newest responses that contain an item, by time.
`litegate:{ledger}:…`: usage per owner; see `lua/ledger.lua`. `r` are finished responses, `c` completions, `v` conversations.
    `r`, a sorted set: all, by time; `r:=owner`: those of one owner; `r:n`: owners by number of entries; `c` and `v` likewise.
    `entries`, a hash: bytes and owner of each entry; `bytes`, a sorted set: owners by bytes; `total`: the bytes of all;
    `kept`, a sorted set: deleted entries that their children still need, by time.
`litegate:{leases}`, a sorted set: responses by the expiry of their lease (Redis' clock, ms);
    `litegate:{leases}:holders`, a hash: the holder of each lease.
`litegate:{cancel}`, a stream: requests to cancel, read by all processes.
`litegate:{health}`: never there. It is deleted to see whether Redis takes writes.
`litegate:{wake}:…`, a stream for each process, by which it interrupts its own blocking read.
`litegate:conversation:{conv_…}`, a hash: o owner, m the conversation, n items added so far;
    b bytes of the items;
    `…:items`, a hash of items by id; `…:order`, a sorted set of ids.
`litegate:values:{=owner}:value:NAME`, a string: a shared value. It expires by itself and is never evicted.
    `litegate:values:{=owner}`, a sorted set: an owner's values by expiry time (ms);
    `litegate:values:{=owner}:sizes`, a hash: their sizes in bytes, and the total under an empty name.
`litegate:limits:{name}`, a hash: what a principal has used. r requests, t tokens, at the times ra, ta (ms); dt tokens on the day d.
    `litegate:limits:{name}:running`, a sorted set: its running requests by the time until which they count.
`litegate:usage:{day}`, a hash: sums by [API, principal, model, number], kept for 410 days; day counts from 1970.
    `litegate:usage:{day}:batch:…`, a string: a batch that was added, for an hour.
`litegate:completion:{chatcmpl-…}`, a hash: o owner, n model, k metadata, d the completion with its messages.
`litegate:completions:=owner`, a sorted set: an owner's completions by time. Times are unique.

All keys of a response have the same lifetime: unlimited while it runs, then `ttl`. A response that continues others extends the
lifetime of all its ancestors to a little more than its own. Large parts live half a `ttl` longer than their responses, if these are not deleted before. A completion lives for `ttl`. Values are msgpack (JSON in completions),
after one byte for the format version.
"""

from gateway_redis.config import RedisConfig
from gateway_redis.plugin import (
    gateway_check_configuration,
    gateway_register_stores,
    open_redis,
)

__all__ = ["RedisConfig", "gateway_check_configuration", "gateway_register_stores", "open_redis"]
