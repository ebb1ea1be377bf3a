-- The laws in Lua: package law line by line, with its names, here and in the files
-- after it. Change both or neither. A script is atomic, but what it did is not
-- undone when it fails half way: what can be wrong with an op was found before it
-- was sent.
--
-- Lua's numbers are doubles. Every value and product here stays below 2^53, so
-- that they are exact, or is only compared with one that does, which rounding
-- does not change; math.floor(a / b) is exact too, as long as a is below 2^53,
-- and so is a % b. They are written with %d or %.0f, since tostring rounds to 14
-- digits.
--
-- The texts name the numbers of what an op asks and of an outcome in placeholders, such
-- as {ask.unit} and {each out: n.*}: see names in script.go.
--
-- All scripts begin with this file. After it comes lone.lua, or head.lua and what that
-- names. Each function costs every call 0.1 us.

local MAX = 9007199254740991
local call, fmt, unpack, match = redis.call, string.format, struct.unpack, string.match
local pack, floor, max, min = struct.pack, math.floor, math.max, math.min

-- Where a long has 32 bits, %d is not for times. %.0f takes twice as long.
local int = fmt('%d', MAX) == '9007199254740991' and '%d' or '%.0f'

local time = call('TIME')
local store_clock = time[1] * 1000000 + time[2]

-- drained_at returns the time at which so many credits have drained, in steps
-- from t: more than none.
local function drained_at(t, credits, drain, step)
  local part = credits % drain
  local steps = (credits - part) / drain
  if part > 0 then steps = steps + 1 end
  t = t + steps * step
  if t > MAX then return MAX end
  return t
end
