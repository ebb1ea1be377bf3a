-- A batch: its requests one after another. What corrects something, starts late or
-- has an ID needs the files that head.lua names.

local function block(op, c, p)
  c.dirty = true
  if c.kind == 0 then c.kind, c.unit, c.step = p.kind, p.unit, p.step end
  c.block, c.reason = 0, ''
  if p.ttl > 0 then
    c.block = max(c.clock, c.at) + p.ttl
    c.reason = ARGV[op.note] or ''
  end
  answer(op, p.count, c, 0, c.block)
end

local function reset(op, c, p)
  answer(op, c.kind ~= 0 and 1 or 0, NONE, 0, 0)
  if c.kind ~= 0 then c.dirty = true end
  clear(c, p.history)
  copy(c, NONE)
  c.reason = ''
  local register = call('GET', KEYS[op.log + 1])
  if register then call('SET', KEYS[op.log + 1], fmt(int, register + 1), 'KEEPTTL') end -- see register.lua
end

-- first charges the first alternative of the ops from i to j that passes: applyFirst of
-- package law.
local function first(i, j)
  local has_id, from, reused, start = rest[i].p.verb == 1 and rest[i].note > 0, nil, false, i
  for k = i, j do
    local op = rest[k]
    if op.p.alternative ~= rest[start].p.alternative then start = k end
    answer(op, 0, NONE, 0, 0, 0, 0, 0, 0)
    local a = has_id and known(op)
    if a and a.settled ~= CANCELLED then
      if a.print == ARGV[op.note + 1] then from = from or start else reused = true end
    end
  end
  if reused and not from then
    fail_all(i, j, REUSED)
    return
  end
  local k, is_known = from or i, from
  while true do
    local last, verb, admitted, stale = k, rest[k].p.verb, true, false
    while rest[last + 1] and last < j and rest[last + 1].p.alternative == rest[k].p.alternative do last = last + 1 end
    if not is_known and last < j then
      local asked = {}
      for n = k, last do asked[n], rest[n].p = rest[n].p, setmetatable({ verb = 2 }, { __index = rest[n].p }) end
      admitted, stale = group(rest, k, last)
      for n = k, last do rest[n].p = asked[n] end
      if stale or admitted and verb == 2 then return end
    end
    if admitted then
      if has_id then apply_once(k, last) else group(rest, k, last) end
      return
    end
    k = last + 1
  end
end

local i = 1
while i <= #rest do
  local j = i
  while rest[j + 1] and rest[j + 1].group == rest[i].group do j = j + 1 end
  local p = rest[i].p
  local verb = p.verb
  if rest[j].p.alternative > 1 then
    first(i, j)
  elseif verb == 1 and rest[i].note > 0 then -- it has an ID
    apply_once(i, j)
  elseif verb == 8 then
    apply_extend(i, j)
  elseif verb <= 2 then
    if i == j and not on_trial and not p.deferred then single(rest[i], p) else group(rest, i, j) end
  elseif verb == 4 then
    apply_settle(i, j)
  else -- each op stands alone
    for k = i, j do
      local op = rest[k]
      local c = cell(op)
      p = op.p
      c.clock, c.test = op.clock, p.now > 0
      if verb == 3 then
        back(op, c, p)
      elseif verb == 5 then
        block(op, c, p)
      elseif verb == 6 then
        reset(op, c, p)
      else
        answer(op, renew(c, p), c, 0, 0)
      end
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
-- Then what the cell remembers of its ID, or without one the number of its register; and
-- in the place of what, and the entry of a log that an extension has moved: when it would
-- have expired, and its member; '' for nothing.
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
  list[#list + 1] = op.remembered and call('GET', KEYS[op.log + 2]) or op.register or ''
  list[#list + 1] = op.forgotten or ''
  list[#list + 1] = op.moved or ''
end
return list
