-- A page of an event log.
-- KEYS: record, events
-- ARGV: the first event's number, maximum number of entries
-- Returns false if there is no record, else: number of events, whether the log has ended (1 or 0), entries.
local state = redis.call('HMGET', KEYS[1], 's', 'n', 'z')
if not state[1] then return false end
local entries = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
return { tonumber(state[2] or '0'), state[3] and 1 or 0, entries }
