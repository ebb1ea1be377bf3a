-- All scripts but that of lone.lua begin with clock.lua and this file. After it come
-- groups.lua, if an op is a plain charge: it answers most calls on its own, and nothing below it is built for those;
-- cells.lua, ops.lua, laws.lua, apply.lua and batch.lua. Before apply.lua stand returns.lua and late.lua, after it
-- register.lua, once.lua and extend.lua, in scripts of calls that need them.
--
-- KEYS are for each op the key of its cell; then what some have of their own: the
-- log of the cell, its register, an admission.
-- The first of ARGV are doubles in a string, see call in call.go: a head, what is
-- asked, and runs of ops, which are of one op without groups.lua. Of each run these are the place in the
-- string of what it asks, the number of its ops, and if it is one that must be decided
-- by batch.lua, its request's number, the place of its log in KEYS, which the others
-- follow, and that of its note in ARGV, which is why a cell is blocked, or an ID, which
-- the request's print and the limit's rule follow; of what is extended, the ID and the rule; of
-- what is settled, the rule.

local packed = ARGV[1]
local slack, most_entries, trial, runs = unpack('<dddd', packed)
local RUN = '<ddddd'
local rest -- ops for batch.lua and giveback.lua; nil: none
local ANSWER = '<c1{out.width * d}' -- '=' and the numbers of law.Numbers
local answers = { pack('<d', store_clock) }
