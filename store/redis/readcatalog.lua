-- Reads the catalog: catalog.go says what is in which key. KEYS: versions, items, keys,
-- changed. ARGV: the version that was read before; 0: none. The answer is the newest
-- version; when it was written, and that of before, or 0; the time; all in microseconds; and
-- the items that later versions wrote; after 0 all but those of single keys.

-- A version is its time, a blank, and the rest.
local function written(version)
  return string.match(redis.call('HGET', KEYS[1], version) or '', '^%d+') or '0'
end

local newest = redis.call('HGET', KEYS[1], 'newest') or '0'
local time = redis.call('TIME')
local answer = { newest, written(newest), written(ARGV[1]), string.format('%.0f', time[1] * 1000000 + time[2]) }
local since = tonumber(ARGV[1])
if since <= 0 then
  local items = redis.call('HGETALL', KEYS[2])
  for i = 2, #items, 2 do answer[#answer + 1] = items[i] end
elseif since < tonumber(newest) then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[1], '+inf')) do
    answer[#answer + 1] = redis.call('HGET', KEYS[2], id) or redis.call('HGET', KEYS[3], id) or ''
  end
end
return answer
