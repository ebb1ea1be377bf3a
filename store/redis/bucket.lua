-- What is in use in a plain cell: drained and use of laws.lua in one place, without a
-- function, which would cost a call of one charge more than this does. It is inside
-- groups.lua and lone.lua.
--
-- level, at and empty are the cell, clock is the time. x is what is in use as of t, and
-- from is where the steps are counted in which it drains.

local now, t, x = max(clock, at)
local used = now < empty and level or 0
if anchor == 0 then
  t = now - (now - at) % step
  x = drain == MAX and used or used - (t - at) / step * drain
  if x <= 0 then x, t = 0, now end
else
  t = max(at, now - now % step)
  local steps = floor((t - at) / step)
  if (t - at) % step > 0 then steps = steps + 1 end
  x = drain == MAX and used or max(0, used - steps * drain)
end
local from = anchor == 0 and t or t - t % step
