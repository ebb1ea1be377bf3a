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
-- This file is what all scripts begin with. After it come plain.lua, which answers
-- most calls on its own: nothing below it is built for those, and each function
-- costs 0.1 us; cells.lua, ops.lua, laws.lua, apply.lua and batch.lua. Before
-- apply.lua stand returns.lua and late.lua, after it register.lua and once.lua, in scripts
-- of calls that need them. limits.lua stands before plain.lua, and begin.lua and
-- room.lua after apply.lua, in all scripts but those for a Cluster.
-- giveback.lua has no plain.lua.
--
-- KEYS are for each op the key of its cell; then what some have of their own: the
-- log of the cell, its register, an admission; and the one that limits.lua is about.
-- The first of ARGV are doubles in a string, see call in call.go: a head, what is
-- asked, and runs of ops who ask the same. Of each run these are the place in the
-- string of what it asks, the number of its ops, and if it is one that must be decided
-- by batch.lua, its request's number, the place of its log in KEYS, which the others
-- follow, and that of its note in ARGV, which is why a cell is blocked, or an ID, which
-- the request's print and the limit's rule follow; of what is settled, the rule.

local MAX = 9007199254740991
local call, fmt, unpack, packed = redis.call, string.format, struct.unpack, ARGV[1]
local floor, max, min = math.floor, math.max, math.min
local slack, most_entries, trial, runs = unpack('<dddd', packed)
local RUN = '<ddddd'
local rest -- ops for batch.lua and giveback.lua; nil: none

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

