-- Delete a response. Its items and results stay while it has children. A marker entry ends the readers of its log.
-- KEYS: record, events, children
-- ARGV: owner, "finished" to delete it only if it is not running, else ""
-- Returns false if it does not exist, else: the parent that need not keep its items for it any more, or ""; ids of its items;
--         the results that stay, or ""; the bytes that stay, or 0; the uses of large parts to give up, or "".
local found = redis.call('HMGET', KEYS[1], 'o', 's', 'p', 'z', 'h', 'r', 'x')
local running = found[2] == 'queued' or found[2] == 'in_progress'
if not found[1] or found[1] ~= ARGV[1] then return false end
if ARGV[2] == 'finished' and running then return false end
local logged = redis.call('DEL', KEYS[2]) == 1
if (logged or running) and not found[4] then
  redis.call('XADD', KEYS[2], '18446744073709551615-18446744073709551615', 'gone', '1')
  redis.call('EXPIRE', KEYS[2], 60)
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return { found[3] or '', found[5] or '', '', 0, found[7] or '' }
end
redis.call('HDEL', KEYS[1], 's', 'o', 'm', 'h', 't', 'n', 'z', 'w', 'g')
local size = 1 + tonumber(found[7] and string.match(found[7], '^%S+ (%d+)') or '0')
for _, field in ipairs({ 'i', 'u', 'r', 'a' }) do size = size + redis.call('HSTRLEN', KEYS[1], field) end
return { '', found[5] or '', found[6] or '', size, '' }
