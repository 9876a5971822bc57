-- Append events to logs.
-- KEYS: record, events of each
-- ARGV: token; for each: known length of the log, whether it ends ("1", "0": with a later call, or ""),
--   number of events, attempt, events
-- Returns for each the new length of its log; -1 if it was deleted, has ended or belongs to another attempt; -2 if stored events were lost.
local out, at, token = {}, 2, ARGV[1]
for index = 1, #KEYS, 2 do
  local record, log = KEYS[index], KEYS[index + 1]
  local known, last, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local attempt = ARGV[at + 3]
  at = at + 4
  local state = redis.call('HMGET', record, 's', 'n', 'z', 'w', 'g')
  local status, length = state[1], tonumber(state[2] or '0')
  local answer
  if status and state[4] == token then
    answer = length -- the same call once more, because its answer was lost
  elseif not status or state[3] or (state[5] or '0') ~= attempt then
    answer = -1
  elseif last == '' and status ~= 'queued' and status ~= 'in_progress' then
    answer = -1 -- somebody else has ended the response: only the end itself is to come
  elseif known > length then
    answer = -2
  else
    length = length + count
    if count > 0 or last == '1' then
      -- An end without events directly follows the last event.
      local entry = { 'XADD', log, string.format(count > 0 and '%.0f-0' or '%.0f-1', length) }
      for event = at, at + count - 1 do
        entry[#entry + 1] = 'e'
        entry[#entry + 1] = ARGV[event]
      end
      if last == '1' then
        entry[#entry + 1] = 'end'
        entry[#entry + 1] = '1'
      end
      redis.call(unpack(entry))
    end
    redis.call('HSET', record, 'n', length, 'w', token)
    if last == '1' then redis.call('HSET', record, 'z', '1') end
    local left = redis.call('PTTL', record)
    if left > 0 then redis.call('PEXPIRE', log, left) end
    answer = length
  end
  out[#out + 1] = answer
  at = at + count
end
return out
