-- In which responses items are, the last first.
-- KEYS: homes of each item
local out = {}
for at, key in ipairs(KEYS) do out[at] = redis.call('ZREVRANGE', key, 0, -1) end
return out
