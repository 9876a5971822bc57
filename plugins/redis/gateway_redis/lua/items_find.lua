-- Returns the responses that contain each item, newest first.
-- KEYS: index entry of each item
local out = {}
for at, key in ipairs(KEYS) do out[at] = redis.call('ZREVRANGE', key, 0, -1) end
return out
