-- Reservations: law/late.go line by line. Also for the scripts of calls that need it.

-- raise makes the level of a decision what it has to be for pending credits to
-- count from a start that lies ahead, and tells whether that can be written down.
local function raise(d, p, start, own, pending)
  local t = d.state.at
  local steps = ceil_div(max(0, start - t), p.step)
  if steps > floor((MAX - pending) / p.drain) then return false end
  local u = { x = max(d.used, steps * p.drain + pending), t = t }
  d.state = state(d.base)
  if start > own then d.state.prev = min(d.state.prev + d.used, MAX) end
  charge(u, p, d.state, d.base.now)
  d.used = u.x
  return true
end

-- late settles when the ops from i to j may start, all of which their cells admit.
-- It tells whether they can; if not, what is in ds is what a refusal says.
local function late(ops, i, j, ds)
  local own, pending, fits, start = {}, {}, true, 0
  for k = i, j do
    local d, p = ds[k], ops[k].p
    own[k] = d.base.now
    local above = d.used - p.capacity
    if above > 0 then own[k] = max(own[k], after(p, d.state.at, above)) end
    start = max(start, own[k])
  end
  for k = i, j do
    local d, op = ds[k], ops[k]
    local p = op.p
    local n = (pending[op.key] or 0) + p.count * p.cost
    pending[op.key] = n
    d.start = start
    if start > d.base.now and not raise(d, p, start, own[k], n) then
      d.granted, d.retry, fits = 0, start, false
    end
  end
  if not fits then
    for k = i, j do ds[k].start = 0 end
  end
  return fits
end
