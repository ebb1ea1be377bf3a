-- What decides, and batches of ops. An answer is a '=' and the 13 numbers that
-- decode in script.go reads.

local function rebase(s, p, clock)
  local b = {
    kind = s.kind, level = s.level, prev = s.prev, at = s.at, unit = s.unit, empty = s.empty, block = s.block,
    now = clock, moved = false, clear = false, carry = 0,
  }
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
  local best = b.now + p.step
  if not nolog and not b.clear then best = min(best, freed(c, b.now, over)) end
  return best
end

-- decide applies an op to a cell: the outcome, Base and, if anything was
-- granted, the state with the charge.
local function decide(s, c, p, clock, pending, nolog)
  local b = rebase(s, p, clock)
  local d = { base = b, state = b, granted = 0, used = 0, retry = 0, stale = false }
  if is_stale(p, b.now) then
    d.stale = true
    return d
  end
  local u = use(b, c, p, nolog)
  local ceiling = p.ceiling > 0 and p.ceiling or p.capacity
  local blocked = b.block > b.now
  local k = 0
  if u.x <= ceiling and not blocked then
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
    elseif u.x <= ceiling - need then
      d.retry = b.now
    else
      d.retry = retry(u, b, c, p, need, ceiling, nolog)
    end
    if p.block > 0 and p.verb == 1 and not blocked and d.retry ~= MAX then
      b.block, b.moved = b.now + p.block, true
    end
    d.retry = max(d.retry, b.block)
  end
  if k > 0 then
    d.state = state(b)
    charge(u, p, d.state, b.now)
  end
  return d
end

-- Batches -----------------------------------------------------------------------

local function answer(op, granted, s, used, retry_at, entry, stale)
  answers[op.at + 1] = pack(ANSWER, '=', granted, s.kind, s.level, s.prev, s.at, s.unit, s.empty, s.block, used,
    stale or op.clock, retry_at, entry or 0, stale and 1 or 0)
end

-- settle does what became of a request to one of its cells.
local function settle(op, c, d, admitted, first)
  local p, b, entry = op.p, d.base, 0
  if p.verb == 2 then
    answer(op, d.granted, c, d.used, d.retry)
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
      entry = add(c, b.now, b.now + p.step, b.now + max(p.step, p.history), d.granted * p.cost, 1, op.note)
    else
      entry = add(c, b.now, 0, b.now + p.history, p.count * p.cost, 0, op.note)
    end
  end
  answer(op, d.granted, c, d.used, d.retry, entry)
end

-- remember notes what each cell of a request on trial was, and what it would be
-- had it been refused: what giveback.lua goes back to when another slot cannot
-- decide the request, or refuses it.
local before, was = {}, {}
local function remember(i, j, ds)
  for k = i, j do
    local op, b = rest[k], ds[k].base
    local n, c = op.key, cell(op)
    local r = before[n]
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

-- single decides a request of one op.
local function single(op, p)
  local c = cell(op)
  c.clock, c.test = op.clock, p.now > 0
  local d = decide(c, c, p, op.clock, 0, false)
  if d.stale then
    answer(op, 0, c, 0, 0, 0, d.base.now)
  else
    settle(op, c, d, d.granted == p.count or (p.partial and d.granted > 0), true)
  end
end

-- group decides the ops from i to j, all or nothing.
local function group(i, j)
  local admitted, stale, ds, tents = true, false, {}, {}
  for k = i, j do
    local op = rest[k]
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
  if on_trial and admitted and not stale then remember(i, j, ds) end
  local seen = {}
  for k = i, j do
    local op = rest[k]
    if stale then
      answer(op, 0, cell(op), 0, 0, 0, ds[k].base.now)
    else
      settle(op, cell(op), ds[k], admitted, not seen[op.key])
    end
    seen[op.key] = true
  end
end

-- back needs returns.lua: a call without returns has none.
local function back(op, c, p)
  local d = give_back(c, p)
  if d.granted > 0 and d.member then lower(c, d.member, d.expires, d.granted, p.history) end
  answer(op, d.granted, c, d.used, 0, 0, d.stale and d.clock)
end

local function block(op, c, p)
  c.dirty = true
  if c.kind == 0 then c.kind, c.unit = p.kind, p.unit end
  c.block, c.reason = 0, ''
  if p.ttl > 0 then
    c.block = max(c.clock, c.at) + p.ttl
    c.reason = op.note
  end
  answer(op, p.count, c, 0, c.block)
end

local NONE = { kind = 0, level = 0, prev = 0, at = 0, unit = 0, empty = 0, block = 0 }

local function reset(op, c, p)
  answer(op, c.kind ~= 0 and 1 or 0, NONE, 0, 0)
  if c.kind ~= 0 then c.dirty = true end
  clear(c, p.history)
  copy(c, NONE)
  c.reason = ''
end

local i = 1
while i <= #rest do
  local j = i
  while rest[j + 1] and rest[j + 1].group == rest[i].group do j = j + 1 end
  local p = rest[i].p
  local verb = p.verb
  if verb == 1 or verb == 2 then
    if i == j and not on_trial then single(rest[i], p) else group(i, j) end
  else -- each op stands alone
    for k = i, j do
      local op = rest[k]
      local c = cell(op)
      p = op.p
      c.clock, c.test = op.clock, p.now > 0
      if verb == 3 then back(op, c, p) elseif verb == 5 then block(op, c, p) else reset(op, c, p) end
    end
  end
  i = j + 1
end
for _, c in pairs(cells) do
  if c.dirty then save(c) end
end
if not on_trial then return table.concat(answers) end

-- After the answers, for each op what its cell was, what it would be had it been
-- refused, and what it is: '' for none, and for all but the first op of a cell.
local list = { table.concat(answers) }
for _, op in ipairs(rest) do
  local n, c = op.key, cells[op.key]
  for _, state in ipairs({ was[n] or NONE, before[n] or NONE, c or NONE }) do
    local v = ''
    if state.kind > 0 and before[n] then
      state.seq = c.seq
      v = text(state)
    end
    list[#list + 1] = v
  end
  before[n] = nil
end
return list
