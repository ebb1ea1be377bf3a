-- Makes one version of the catalog: catalog.go says what is in which key. KEYS: versions,
-- items, keys, changed. ARGV: the version that it is made on top of, its text without the
-- time, how many of the rest are for items; the rest are IDs and items, in pairs, those for
-- keys last. The answer is the newest version, and whether it was written.
--
-- A user who lacks a right leaves the catalog as it was: all that can be refused comes
-- before the first HSET, and ZADD alone changes nothing that is read.

local newest = redis.call('HGET', KEYS[1], 'newest') or '0'
if newest ~= ARGV[1] then return { newest, '' } end
local time = redis.call('TIME')
local clock = string.format('%.0f', time[1] * 1000000 + time[2])
local version = string.format('%.0f', newest + 1)

local FIRST = 4
local MOST = 1000 -- arguments of a command, an even number: Lua's stack is bounded

local function put(command, key, list, first, last)
  for i = first, last, MOST do
    redis.call(command, key, unpack(list, i, math.min(i + MOST - 1, last)))
  end
end

local changed = {}
for i = FIRST, #ARGV, 2 do
  changed[#changed + 1] = version
  changed[#changed + 1] = ARGV[i]
end
put('ZADD', KEYS[4], changed, 1, #changed)
local keys = FIRST + ARGV[3]
put('HSET', KEYS[2], ARGV, FIRST, keys - 1)
put('HSET', KEYS[3], ARGV, keys, #ARGV)
redis.call('HSET', KEYS[1], 'newest', version, version, clock .. ' ' .. ARGV[2])
return { version, 'written' }
