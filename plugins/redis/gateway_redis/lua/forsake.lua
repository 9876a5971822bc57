-- A child needs this response's items no more.
-- KEYS: record, events, children
-- ARGV: the child
-- Returns its own parent, where this response was kept for its children alone and they are gone; else "".
redis.call('SREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[3]) == 1 then return '' end
if redis.call('HEXISTS', KEYS[1], 'o') == 1 then return '' end
local parent = redis.call('HGET', KEYS[1], 'p')
redis.call('DEL', KEYS[1])
return parent or ''
