-- Record that a child does not need this response's items any more.
-- KEYS: record, events, children
-- ARGV: the child
-- Returns whether the response was removed (1 or 0), which happens if it was kept only for its children; and then its parent, or "", and the
--         uses of large parts to give up, or "".
redis.call('SREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[3]) == 1 then return { 0, '', '' } end
if redis.call('HEXISTS', KEYS[1], 'o') == 1 then return { 0, '', '' } end
local found = redis.call('HMGET', KEYS[1], 'p', 'x')
redis.call('DEL', KEYS[1])
return { 1, found[1] or '', found[2] or '' }
