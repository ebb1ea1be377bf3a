-- Lists versions of the catalog, newest first: catalog.go says how they are kept. KEYS:
-- versions. ARGV: the number that they are below, 0 for all; how many. The answer is the
-- number of the first one, then the texts of it and of those before it.

local first = tonumber(redis.call('HGET', KEYS[1], 'newest') or 0)
local before = tonumber(ARGV[1])
if before ~= 0 and before <= first then first = before - 1 end
local answer = { string.format('%.0f', first) }
for number = first, math.max(1, first - ARGV[2] + 1), -1 do
  answer[#answer + 1] = redis.call('HGET', KEYS[1], string.format('%.0f', number)) or ''
end
return answer
