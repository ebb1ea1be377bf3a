-- A lone plain charge: a call of one op of those that groups.lua decides, without
-- the encoding of a batch. Before it stands clock.lua.
--
-- KEYS are the cell. ARGV are the slack and what is asked, doubles in a string, and the limit's unit and step as they
-- stand in a cell.
--
-- Returned is '+', the clock and the text of the cell, if all was granted. '-' is for a
-- refusal: the cell is as it was, and its figures are left to package law. Empty is the
-- answer about what is not plain: nothing is done.

local key, terms = KEYS[1], ARGV[2]
local slack, {each lone: *} = unpack('<d{lone.width * d}', ARGV[1])
if ceiling == 0 then ceiling = capacity end
local need, clock, life = cost * count, now, 0
if clock == 0 then clock = store_clock else life = 3600000 end -- see life in cells.lua
local level, at, empty = 0, 0, 0
local v = call('GET', key)
if v then
  local found
  level, at, found, empty = match(v, '^1 (%d+) 0 (%d+) (%d+ %d+) (%d+) 0 0 $')
  if found ~= terms then return '' end
  level, at, empty = level + 0, at + 0, empty + 0
  if at - clock > heal then return '' end
end
{bucket}
if x > ceiling - need then return '-' .. pack('<d', store_clock) .. (v or '') end
x = x + need
empty = drained_at(from, x, drain, step)
v = fmt('1 ' .. int .. ' 0 ' .. int .. ' %s ' .. int .. ' 0 0 ', x, t, terms, empty)
call('SET', key, v, 'PX', fmt(int, max((floor((empty - clock) / 1000000) + 1) * 1000 + slack, life)))
return '+' .. pack('<d', store_clock) .. v
