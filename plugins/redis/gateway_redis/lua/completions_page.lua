-- A page of an owner's chat completions, after a given completion or time.
-- KEYS: the owner's completions
-- ARGV: the completion ("" for none), else the time ("" for none), "asc" or "desc", maximum number
-- Returns false if the given completion does not exist, else: the time of the last one, completions.
local start = ARGV[2]
if ARGV[1] ~= '' then
  start = redis.call('ZSCORE', KEYS[1], ARGV[1])
  if not start then return false end
end
local range, from, to = 'ZRANGEBYSCORE', '-inf', '+inf'
if ARGV[3] == 'desc' then range, from, to = 'ZREVRANGEBYSCORE', '+inf', '-inf' end
if start ~= '' then from = '(' .. start end
local out = redis.call(range, KEYS[1], from, to, 'LIMIT', 0, ARGV[4])
local last = out[#out] and redis.call('ZSCORE', KEYS[1], out[#out]) or ''
return { last, out }
