-- Lists what was done to keys, newest first: catalog.go says how it is kept. KEYS: actions. ARGV: the number that they are
-- below, 0 for all; how many. The answer is how many, then their texts. Numbers have no gaps.

local newest = redis.call('LINDEX', KEYS[1], 0)
if not newest then return { '0' } end
local skip = 0
if ARGV[1] ~= '0' then skip = math.max(0, cjson.decode(newest)[1] - ARGV[1] + 1) end
local list = redis.call('LRANGE', KEYS[1], skip, skip + ARGV[2] - 1)
table.insert(list, 1, tostring(#list))
return list
