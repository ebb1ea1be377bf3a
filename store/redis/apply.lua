-- What decides: requests that take or check, and each op of its cell. An answer is
-- a '=' and the numbers of law.Numbers.

-- per_step is perStep of package law, and emptied emptyAt.
local function per_step(p)
  return p.kind == 1 and min(p.drain, p.capacity) or p.capacity
end

-- convert returns whether it has converted a cell, or how much is in use that it
-- must not.
local function convert(b, p, healed)
  local other = p.kind == 1 and b.step ~= p.step
  local fold = b.kind ~= p.kind or p.kind == 3 and b.unit ~= p.unit or p.kind == 2 and b.step ~= p.step
  if not other and not fold and b.unit == p.unit then return false, 0 end
  local level = b.level
  if fold and b.kind == 2 then level = level + b.prev end
  level = rescale(level, b.unit, p.unit, MAX)
  if not healed and (level >= MAX or level > p.capacity and per_step(p) == p.capacity) then return false, level end
  if fold then
    b.prev, b.at = 0, b.now
  elseif other then
    b.at = min(b.now, add_steps(b.at, 1, b.step))
  end
  local most = p.kind == 2 and 4294967295 or MAX
  b.level, b.prev = min(level, most), rescale(b.prev, b.unit, p.unit, most)
  if p.kind == 1 then b.prev = min(b.prev + b.level, MAX) end
  b.kind, b.unit, b.step = p.kind, p.unit, p.step
  return true, 0
end

local function emptied(b, p)
  if b.level == 0 and (b.prev == 0 or p.kind == 1) then return 0 end
  if p.kind == 2 then
    return empty_at({ start = b.now - b.now % p.step, level = b.level, prev = b.prev }, p.step)
  elseif p.kind == 3 then
    return b.now + p.step
  end
  return after(p, p.anchor == 2 and b.now or b.at, b.level)
end

local function rebase(s, p, clock)
  local b = {
    kind = s.kind, level = s.level, prev = s.prev, at = s.at, unit = s.unit, step = s.step, empty = s.empty, block = s.block,
    now = clock, moved = false, over = 0, clear = false, carry = 0,
  }
  if b.kind == 0 then b.kind, b.unit, b.step = p.kind, p.unit, p.step end
  local healed = b.at - clock > p.heal
  if healed then b.at = clock end
  b.now = max(clock, b.at)
  if not healed and b.now >= b.empty then b.level, b.prev = 0, 0 end
  local converted
  converted, b.over = convert(b, p, healed)
  if b.over > 0 then
    local empty = add_steps(b.now, ceil_div(b.over, per_step(p)), p.step)
    if b.over < MAX and b.kind ~= 3 and empty < b.empty then b.empty, b.moved = empty, true end
    return b
  end
  b.moved = converted or healed
  if b.moved then
    local keeps = b.prev > 0 and (b.level == 0 or p.kind == 1 and p.anchor ~= 2 and p.drain < p.capacity)
    local empty = emptied(b, p)
    if healed or empty < b.empty and not keeps then b.empty = empty end
    if p.kind == 3 then b.clear, b.carry = true, b.level end
  end
  return b
end

local function retry(u, b, c, p, need, ceiling, nolog)
  local over = u.x - (ceiling - need)
  if p.kind == 1 then
    return after(p, u.t, over)
  elseif p.kind == 2 then
    local at, prev, level = u.start, u.prev, u.level
    if need > ceiling - level then at, prev, level = u.start + p.step, u.level, 0 end
    local room = ceiling - level - need
    if prev == 0 or room >= prev then return at end
    return at + p.step - u.q * floor(room * u.f / prev)
  end
  local best = max(b.now + p.step, b.empty)
  if not nolog and not b.clear then best = min(best, freed(c, b.now, over)) end
  return best
end

-- decide applies an op to a cell: the outcome, Base and, if anything was
-- granted, the state with the charge.
local function decide(s, c, p, clock, pending, nolog)
  local b = rebase(s, p, clock)
  local d = { base = b, state = b, granted = 0, used = 0, retry = 0, start = 0, stale = false }
  if is_stale(p, b.now) then
    d.stale = true
    return d
  end
  local u = b.over > 0 and { x = b.over, level = 0 } or use(b, c, p, nolog)
  local ceiling = p.ceiling > 0 and p.ceiling or p.capacity
  if p.deferred and p.count * p.cost > p.capacity - pending then ceiling = 0 end -- would never start
  local blocked = b.block > b.now
  local k = 0
  if u.x <= ceiling and not blocked and b.over == 0 then
    k = min(p.count, floor((ceiling - u.x) / p.cost))
    if k < p.count and not p.partial then k = 0 end
  end
  u.x = u.x + k * p.cost
  if p.kind == 2 then u.level = u.level + k * p.cost end
  d.granted, d.used = k, u.x
  if k < p.count then
    local need = p.partial and p.cost or p.count * p.cost
    if need > ceiling - pending then
      d.retry = MAX
    elseif b.over > 0 then
      d.retry = b.empty
    elseif u.x <= ceiling - need then
      d.retry = b.now
    else
      d.retry = retry(u, b, c, p, need, ceiling, nolog)
      if k == 0 then d.retry = is_fixed_window(p) and b.empty or min(d.retry, b.empty) end -- see rebase of package law
    end
    if p.block > 0 and p.verb == 1 and not blocked and d.retry ~= MAX then
      b.block, b.moved = b.now + p.block, true
    end
    d.retry = max(d.retry, b.block)
  else
    local one = min(p.unit, p.capacity)
    if p.kind == 3 and p.verb == 1 and not p.extends and u.x > p.capacity - one then
      d.retry = retry(u, b, c, p, one, p.capacity, nolog)
    end
  end
  if k > 0 then
    d.state = state(b)
    charge(u, p, d.state, b.now)
  end
  return d
end

-- Requests ----------------------------------------------------------------------

local NONE = { kind = 0, level = 0, prev = 0, at = 0, unit = 0, step = 0, empty = 0, block = 0 }
local STALE = 1 -- see law.Numbers

local function answer(op, granted, s, used, retry_at, entry, start, how, clock)
  answers[op.at + 1] = pack(ANSWER, '=', {out: granted => granted, law => s.kind, level => s.level, prev => s.prev,
    at => s.at, unit => s.unit, empty_at => s.empty, blocked_until => s.block, used => used, clock => clock or op.clock, retry_at => retry_at,
    entry => entry or 0, status => how or 0, start_at => start or 0, step => s.step})
end

-- settle does what became of a request to one of its cells.
local function settle(op, c, d, admitted, first)
  local p, b, entry = op.p, d.base, 0
  if not admitted and d.granted == p.count then d.retry = 0 end -- see Outcome of package law
  if p.verb == 2 then
    answer(op, d.granted, c, d.used, d.retry)
    return
  end
  local blocked = c.block
  if b.moved or admitted then
    c.dirty = true
    if b.clear then clear(c, p.history) end
    if b.carry > 0 then
      add(c, b.now, b.empty, b.now + max(p.step, p.history), b.carry, 1, 'carried over')
    end
  end
  if admitted then
    copy(c, d.state)
  elseif b.moved and first then
    copy(c, b)
  elseif b.moved then
    c.kind, c.unit, c.step, c.block = b.kind, b.unit, b.step, b.block
  end
  if c.block ~= blocked then c.reason = '' end
  if p.kind == 3 and (admitted or p.history > 0) then
    if admitted then
      entry = add(c, b.now, b.now + p.step, b.now + max(p.step, p.history), d.granted * p.cost, 1, ARGV[op.note] or '')
    else
      entry = add(c, b.now, 0, b.now + p.history, p.count * p.cost, 0, ARGV[op.note] or '')
    end
  end
  answer(op, d.granted, c, d.used, d.retry, entry, d.start)
end

-- remember notes what each cell of a request on trial was, and what it would be
-- had it been refused: what giveback.lua goes back to when another slot cannot
-- decide the request, or refuses it. Without an ID it makes the cell a register, if it
-- has none, so that giveback.lua sees whether the cell was reset in between; if it takes
-- longer than a minute, nothing is given back.
local before, was = {}, {}
local function remember(ops, i, j, ds)
  for k = i, j do
    local op, b = ops[k], ds[k].base
    local n, c = op.key, cell(op)
    local r = before[n]
    if not r then
      r = copy({ seq = c.seq, reason = c.reason }, c)
      before[n] = r
      was[n] = copy({ seq = c.seq, reason = c.reason }, c)
      if b.moved then copy(r, b) end
    elseif b.moved then
      r.kind, r.unit, r.step, r.block = b.kind, b.unit, b.step, b.block
    end
    if r.block ~= c.block then r.reason = '' end
    if op.note == 0 then
      local register = KEYS[op.log + 1]
      op.register = call('GET', register) or fmt(int, store_clock)
      call('SET', register, op.register, 'PX', max(60000, call('PTTL', register)))
    end
  end
end

-- single decides a request of one op.
local function single(op, p)
  local c = cell(op)
  c.clock, c.test = op.clock, p.now > 0
  local d = decide(c, c, p, op.clock, 0, false)
  if d.stale then
    answer(op, 0, c, 0, 0, 0, 0, STALE, d.base.now)
  else
    settle(op, c, d, d.granted == p.count or (p.partial and d.granted > 0), true)
  end
end

-- group decides the ops from i to j, all or nothing, and tells whether they were
-- admitted, or are stale.
local function group(ops, i, j)
  local admitted, stale, ds, tents = true, false, {}, {}
  for k = i, j do
    local op = ops[k]
    local p, c, t = op.p, cell(op), tents[op.key]
    if not t then
      t = state(c)
      t.pending, t.nolog = 0, false
      tents[op.key] = t
    end
    c.clock, c.test = op.clock, p.now > 0
    local d = decide(t, c, p, op.clock, t.pending, t.nolog)
    if d.base.clear then t.nolog = true end
    stale = stale or d.stale
    if d.granted == p.count or (p.partial and d.granted > 0) then
      t.pending = t.pending + d.granted * p.cost
      copy(t, d.state)
    else
      admitted = false
    end
    ds[k] = d
  end
  admitted = admitted and not stale
  if admitted and ops[i].p.deferred then admitted = late(ops, i, j, ds) end
  if on_trial and admitted then remember(ops, i, j, ds) end
  local seen = {}
  for k = i, j do
    local op = ops[k]
    if stale then
      answer(op, 0, cell(op), 0, 0, 0, 0, STALE, ds[k].base.now)
    else
      settle(op, cell(op), ds[k], admitted, not seen[op.key])
    end
    seen[op.key] = true
  end
  return admitted, stale
end

-- back needs returns.lua: a call without corrections has none. given was given back before.
local function back(op, c, p, given)
  local d = correct(c, p)
  if d.granted ~= 0 and d.member then lower(c, d.member, d.expires, d.granted, p.history) end
  answer(op, (given or 0) + d.granted, c, d.used, 0, 0, 0, d.stale and STALE, d.clock)
end
