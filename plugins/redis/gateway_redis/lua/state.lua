-- The lengths of event logs.
-- KEYS: records
-- Returns for each: number of events, or -1 if there is no record; whether the log has ended (1 or 0).
local out = {}
for _, key in ipairs(KEYS) do
  local state = redis.call('HMGET', key, 's', 'n', 'z')
  out[#out + 1] = state[1] and tonumber(state[2] or '0') or -1
  out[#out + 1] = state[3] and 1 or 0
end
return out
