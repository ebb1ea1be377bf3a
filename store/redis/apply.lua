-- What decides, and batches of ops. The last of ARGV is whether the batch is a
-- request on trial. Returned are 13 numbers for each op, as decode in script.go
-- reads them.

on_trial = arg() == 1

local function rebase(s, p, clock)
  local b = copy({ moved = false, clear = false, carry = 0 }, s)
  if b.kind == 0 then b.kind, b.unit = p.kind, p.unit end
  local converted = b.kind ~= p.kind or b.unit ~= p.unit
  local healed = b.at - clock > p.heal
  if healed then b.at, b.empty = clock, 0 end
  b.now = max(clock, b.at)
  if converted then
    local level = b.level
    if b.kind ~= p.kind or p.kind == 3 then
      if b.kind == 2 then level = level + b.prev end
      if b.now >= s.empty then level = 0 end
      b.prev, b.at, b.empty = 0, b.now, 0
    end
    local most = p.kind == 2 and 4294967295 or MAX
    b.level = rescale(level, b.unit, p.unit, most)
    b.prev = rescale(b.prev, b.unit, p.unit, most)
    b.kind, b.unit = p.kind, p.unit
  end
  b.moved = healed or converted
  if p.kind == 3 and b.moved then
    b.clear, b.carry = true, b.level
    b.empty = b.now + p.step
  end
  return b
end

local function retry(u, b, c, p, op, need, ceiling, nolog)
  local over = u.x - (ceiling - need)
  if p.kind == 1 then
    return after(p, op, u.t, over)
  elseif p.kind == 2 then
    local at, prev, level = u.start, u.prev, u.level
    if need > ceiling - level then at, prev, level = u.start + p.step, u.level, 0 end
    local room = ceiling - level - need
    if prev == 0 or room >= prev then return at end
    return at + p.step - u.q * floor(room * u.f / prev)
  end
  local best = b.now + p.step
  if not nolog and not b.clear then best = min(best, freed(c, b.now, over)) end
  return best
end

-- decide applies an op to a cell: the outcome, Base and, if anything was
-- granted, the state with the charge.
local function decide(s, c, p, op, clock, pending, nolog)
  local b = rebase(s, p, clock)
  local d = { base = b, state = b, granted = 0, used = 0, retry = 0, clock = clock }
  if is_stale(p, op, b.now) then
    d.stale = true
    return d
  end
  local u = use(b, c, p, op, nolog)
  local ceiling = op.ceiling > 0 and op.ceiling or p.capacity
  local blocked = b.block > b.now
  local k = 0
  if u.x <= ceiling and not blocked then
    k = min(op.count, floor((ceiling - u.x) / op.cost))
    if k < op.count and not op.partial then k = 0 end
  end
  u.x = u.x + k * op.cost
  if p.kind == 2 then u.level = u.level + k * op.cost end
  d.granted, d.used = k, u.x
  if k < op.count then
    local need = op.partial and op.cost or op.count * op.cost
    if need > ceiling - pending then
      d.retry = MAX
    elseif u.x <= ceiling - need then
      d.retry = b.now
    else
      d.retry = retry(u, b, c, p, op, need, ceiling, nolog)
    end
    if p.block > 0 and op.verb == 1 and not blocked and d.retry ~= MAX then
      b.block, b.moved = b.now + p.block, true
    end
    d.retry = max(d.retry, b.block)
  end
  if k > 0 then
    local st = copy({}, b)
    charge(u, p, op, st, b.now)
    d.state = st
  end
  return d
end

-- Batches -----------------------------------------------------------------------

local answers = {}
local function answer(i, granted, s, used, clock, retry_at, entry, stale)
  local o = (i - 1) * 13
  answers[o + 1], answers[o + 9], answers[o + 10], answers[o + 11] = granted, used, clock, retry_at
  answers[o + 12], answers[o + 13] = entry or 0, stale and 1 or 0
  answers[o + 2], answers[o + 3], answers[o + 4], answers[o + 5] = s.kind, s.level, s.prev, s.at
  answers[o + 6], answers[o + 7], answers[o + 8] = s.unit, s.empty, s.block
end

-- settle does what became of a request to one of its cells.
local function settle(i, op, c, d, admitted, first)
  local p, b, entry = op.p, d.base, 0
  if op.verb == 2 then
    answer(i, d.granted, c, d.used, d.clock, d.retry)
    return
  end
  local blocked = c.block
  if b.moved or admitted then
    c.dirty = true
    if b.clear then clear(c, p.history) end
    if b.carry > 0 then
      add(c, b.now, b.now + p.step, b.now + max(p.step, p.history), b.carry, 1, 'carried over')
    end
  end
  if admitted then
    copy(c, d.state)
  elseif b.moved and first then
    copy(c, b)
  elseif b.moved then
    c.kind, c.unit, c.block = b.kind, b.unit, b.block
  end
  if c.block ~= blocked then c.reason = '' end
  if p.kind == 3 and (admitted or p.history > 0) then
    if admitted then
      entry = add(c, b.now, b.now + p.step, b.now + max(p.step, p.history), d.granted * op.cost, 1, op.note)
    else
      entry = add(c, b.now, 0, b.now + p.history, op.count * op.cost, 0, op.note)
    end
  end
  answer(i, d.granted, c, d.used, d.clock, d.retry, entry)
end

-- remember notes what each cell of a request on trial was, and what it would be
-- had it been refused: what giveback.lua goes back to when another slot cannot
-- decide the request, or refuses it.
local before, was = {}, {}
local function remember(i, j, ds)
  for k = i, j do
    local n, b = ops[k].cell, ds[k].base
    local c, r = cell(n), before[n]
    if not r then
      r = copy({ seq = c.seq, reason = c.reason }, c)
      before[n] = r
      was[n] = copy({ seq = c.seq, reason = c.reason }, c)
      if b.moved then copy(r, b) end
    elseif b.moved then
      r.kind, r.unit, r.block = b.kind, b.unit, b.block
    end
    if r.block ~= c.block then r.reason = '' end
  end
end

-- group decides the ops from i to j, all or nothing, and returns whether they
-- were admitted.
local function group(i, j)
  local admitted, stale, ds, tents = true, false, {}, {}
  for k = i, j do
    local op = ops[k]
    local c = cell(op.cell)
    local t = tents[op.cell]
    if not t then
      t = copy({ pending = 0, nolog = false }, c)
      tents[op.cell] = t
    end
    local clock = op.now > 0 and op.now or store_clock
    c.clock, c.test = clock, op.now > 0
    local d = decide(t, c, op.p, op, clock, t.pending, t.nolog)
    if d.base.clear then t.nolog = true end
    stale = stale or d.stale
    if d.granted == op.count or (op.partial and d.granted > 0) then
      t.pending = t.pending + d.granted * op.cost
      copy(t, d.state)
    else
      admitted = false
    end
    ds[k] = d
  end
  if on_trial and admitted and not stale then remember(i, j, ds) end
  local seen = {}
  for k = i, j do
    local op = ops[k]
    local c = cell(op.cell)
    if stale then
      answer(k, 0, c, 0, ds[k].base.now, 0, 0, true)
    else
      settle(k, op, c, ds[k], admitted, not seen[op.cell])
    end
    seen[op.cell] = true
  end
  return admitted and not stale
end

-- back needs returns.lua: a call without returns has none.
local function back(i, op, c)
  local d = give_back(c, op)
  if d.granted > 0 and d.member then lower(c, d.member, d.expires, d.granted, op.p.history) end
  answer(i, d.granted, c, d.used, d.clock, 0, 0, d.stale)
end

local function block(i, op, c)
  c.dirty = true
  if c.kind == 0 then c.kind, c.unit = op.p.kind, op.p.unit end
  c.block, c.reason = 0, ''
  if op.ttl > 0 then
    c.block = max(c.clock, c.at) + op.ttl
    c.reason = op.note
  end
  answer(i, op.count, c, 0, c.clock, c.block)
end

local NONE = { kind = 0, level = 0, prev = 0, at = 0, unit = 0, empty = 0, block = 0 }

local function reset(i, op, c)
  answer(i, c.kind ~= 0 and 1 or 0, NONE, 0, c.clock, 0)
  if c.kind ~= 0 then c.dirty = true end
  clear(c, op.p.history)
  copy(c, NONE)
  c.reason = ''
end

local function run()
  local i = 1
  while i <= #ops do
    local j = i
    while ops[j + 1] and ops[j + 1].group == ops[i].group do j = j + 1 end
    local verb = ops[i].verb
    if verb == 1 or verb == 2 then
      group(i, j)
    else -- each op stands alone
      for k = i, j do
        local op = ops[k]
        local c = cell(op.cell)
        c.clock, c.test = op.now > 0 and op.now or store_clock, op.now > 0
        if verb == 3 then back(k, op, c) elseif verb == 5 then block(k, op, c) else reset(k, op, c) end
      end
    end
    i = j + 1
  end
  for _, c in pairs(cells) do
    if c.dirty then save(c) end
  end
end

run()
if on_trial then
  for i, c in pairs(cells) do
    local o = #ops * 13 + 3 * i - 2
    answers[o], answers[o + 1], answers[o + 2] = '', '', ''
    for n, state in ipairs({ was[i] or NONE, before[i] or NONE, c }) do
      if state.kind > 0 and before[i] then
        state.seq = c.seq
        answers[o + n - 1] = text(state)
      end
    end
  end
end
return answers
