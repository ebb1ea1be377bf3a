-- Reads some items of the catalog: catalog.go says how they are kept. KEYS: items or keys.
-- ARGV: where the scan stands, about how many. The answer is where it stands then, 0 at the
-- end, and the items.

local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = { found[1] }
for i = 2, #found[2], 2 do answer[#answer + 1] = found[2][i] end
return answer
