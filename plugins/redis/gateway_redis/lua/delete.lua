-- Forget a response. Its items and results stay while it has children; its readers find a mark that ends them.
-- KEYS: record, events, children
-- ARGV: owner, or "*" for anybody's that is not running
-- Returns false where there is none, else: the parent that need not keep its items for it, or ""; ids of its items; owner;
--         the results that stay, or "".
local found = redis.call('HMGET', KEYS[1], 'o', 's', 'p', 'z', 'h', 'r')
local running = found[2] == 'queued' or found[2] == 'in_progress'
if not found[1] then return false end
if ARGV[1] == '*' then
  if running then return false end
elseif found[1] ~= ARGV[1] then
  return false
end
local logged = redis.call('DEL', KEYS[2]) == 1
if (logged or running) and not found[4] then
  redis.call('XADD', KEYS[2], '18446744073709551615-18446744073709551615', 'gone', '1')
  redis.call('EXPIRE', KEYS[2], 60)
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return { found[3] or '', found[5] or '', found[1], '' }
end
redis.call('HDEL', KEYS[1], 's', 'o', 'm', 'h', 't', 'n', 'z', 'w', 'g')
return { '', found[5] or '', found[1], found[6] or '' }
