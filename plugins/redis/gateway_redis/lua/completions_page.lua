-- Chat completions of an owner that follow one, or a time.
-- KEYS: the owner's completions
-- ARGV: the one ("" for none), else the time ("" for none), "asc" or "desc", the most
-- Returns false where there is not the one, else: the time of the last, completions.
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
