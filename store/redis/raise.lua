-- Lets what a Late request took in this slot, on trial or before, count from the
-- start of the last of its charges, which lies in another slot: see start.go. The
-- charges are the ops as they were asked; ARGV go on with the start. All of them
-- are raised, or none.
--
-- A cell that is as the request left it is raised as late.lua does where all are in
-- one slot. Into another, others have come since, whose starts were given to them
-- as if this one began earlier there; or it was reset. There as much is given back
-- as the return rule allows, and it is charged anew, behind them.

-- holding returns what an op has of its cell: how it was left, and the start that it
-- counts from, if that is known. The admission says it, or without an ID the op.
-- lost tells that the cell may be as it was left and yet does not hold the charge.
local function holding(op, c)
  local p, h = op.p, { start = 0, level = op.p.level, at = op.p.made, prev = op.p.returned, lost = false }
  if op.note > 0 then
    local a = known(op)
    h.lost = not a or a.settled ~= -1 or a.rule ~= ARGV[op.note + 2]
    if not h.lost then
      local n = numbers(a)
      h.numbers, h.start, h.level, h.at, h.prev = n, n[14], n[3], n[5], n[4]
      h.shared = (a.shared == '1' or n[16] ~= asking) and 1 or 0 -- or another asking's charge
    end
  end
  h.lost = h.lost or not is_of(c, p)
  return h
end

-- by_cell returns for each cell of the ops what the last of them has of it, whether
-- it is as that left it, what they all cost, and the cell as it is; and for each op
-- what it has. A cell is placed if the op counts from the start, or a later one.
local function by_cell(i, j, start)
  local cs, hs = {}, {}
  for k = i, j do
    local op = rest[k]
    local c = cell(op)
    c.clock, c.test = op.clock, op.p.now > 0
    local h = holding(op, c)
    local was = cs[op.key] or { all = 0, lost = false, state = state(c) }
    cs[op.key] = {
      all = was.all + op.p.count * op.p.cost, done = 0, pending = 0, lost = was.lost or h.lost, state = was.state,
      placed = h.start >= start, as_left = h.level == c.level and h.at == c.at and h.prev == c.prev,
    }
    hs[k] = h
  end
  for _, v in pairs(cs) do v.kept = v.as_left and not v.lost end
  return cs, hs
end

-- raised is what becomes of an op whose cell is as it was left: it has its place in
-- it, so only the start counts, even if that is over by now. Its level says no more
-- when it could start alone, once it was raised to a step's end.
local function raised(op, c, v)
  local b = rebase(c, op.p, op.clock)
  local u = use(b, c, op.p, false)
  b.now = 0
  v.done = v.done + op.p.count * op.p.cost
  return { base = b, state = { at = u.t }, granted = op.p.count, used = max(0, u.x - v.all + v.done), retry = 0, start = 0, placed = true }
end

-- anew decides an op behind those who have come, or after a reset.
local function anew(op, c, v)
  local p = op.p
  v.tent = v.tent or state(c)
  local d = decide(v.tent, c, p, op.clock, v.pending, false)
  if d.granted == p.count then
    v.pending = v.pending + p.count * p.cost
    copy(v.tent, d.state)
  end
  return d
end

-- stand decides the ops from i to j. An answer is Replayed if its cell was as it was
-- left; a start later than that which was asked for says that nothing was changed.
local function stand(i, j)
  local start = tonumber(ARGV[2])
  local cs, hs = by_cell(i, j, start)
  local ops, ds, fits, seen = {}, {}, true, {}
  for k = i, j do
    local op, h = rest[k], hs[k]
    local v, c = cs[op.key], cell(op)
    if v.placed and h.numbers then
      replay(op, h.numbers)
      start = max(start, h.start)
    else
      ops[#ops + 1], op.holds = op, h
      if not v.kept and not h.lost then
        correct(c, setmetatable({ level = h.level, made = h.at, returned = h.prev }, { __index = op.p }))
      end
    end
  end
  for k, op in ipairs(ops) do
    local v = cs[op.key]
    ds[k] = (v.kept and raised or anew)(op, cell(op), v)
    fits = fits and ds[k].granted == op.p.count
  end
  fits = fits and late(ops, 1, #ops, ds, start)
  local done = fits and (#ops == 0 or ds[1].start == tonumber(ARGV[2]))
  for k, op in ipairs(ops) do
    local v, c, d = cs[op.key], cell(op), ds[k]
    if not done then
      copy(c, v.state)
      c.dirty = false
      answer(op, d.granted, c, d.used, d.retry, 0, d.start)
    elseif not v.kept then
      remember({ op }, 1, 1, { d })
    end
  end
  if not done then return end
  for k, op in ipairs(ops) do
    local v, c, d = cs[op.key], cell(op), ds[k]
    if v.kept then
      copy(c, d.state)
      c.dirty, kept[op.key] = true, true
      answer(op, d.granted, c, d.used, 0, 0, d.start, REPLAYED)
    else
      settle(op, c, d, true, not seen[op.key])
      seen[op.key] = true
    end
    if op.note > 0 then
      -- What was given back above is not to be remembered if this is.
      op.forgotten = (v.kept or op.holds.lost) and call('GET', KEYS[op.log + 2])
      admit(op, ARGV[op.note + 1], op.holds.shared)
      op.remembered = true
    end
  end
end
