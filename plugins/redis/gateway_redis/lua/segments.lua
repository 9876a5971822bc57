-- Returns the input and output items of responses.
-- KEYS: records
local found = {}
for at, key in ipairs(KEYS) do found[at] = redis.call('HMGET', key, 'i', 'u') end
return found
