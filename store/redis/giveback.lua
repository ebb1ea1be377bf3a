-- Gives back what a request took on trial in this slot, since another slot has
-- refused it. A cell that nobody has touched meanwhile becomes what it was; from
-- one that was, as much is taken as the return rule allows (docs/project/decisions/laws.md).
--
-- The charges are ops of verb Return. ARGV go on with what the cell of each was (''
-- for none), what the trial made of it, what it made it remember of an ID, or the number
-- of its register, in the place of what, and the entry that an extension has moved: see
-- giveBack in giveback.go. For a cell of
-- several charges, the first two stand at the first. What is remembered is forgotten, or
-- becomes what it was; but if others have been told of it meanwhile, or have settled it,
-- it is theirs, and stays with the charge. If the cell was reset, its register has another
-- number, and nothing is left to be given back.
-- Returned is the state of each charge's cell.

local texts = {}
for i, op in ipairs(rest) do
  texts[op.key] = texts[op.key] or { before = ARGV[5 * i - 3], after = ARGV[5 * i - 2] }
end

-- withdraw makes the entry of a charge one of a refused attempt at a cost, or removes it
-- where no history is asked for. One whose credits are still in the level keeps
-- its time, at which they leave it.
local function withdraw(c, member, expires, history, cost)
  if history > 0 then
    rewrite(c, member, (string.gsub(member, ENTRY, '%1 %2 %3 ' .. fmt(int, cost) .. ' 0')), expires)
  elseif expires == 0 then
    rewrite(c, member)
  end
end

-- undo gives back a charge. moved is the entry whose credits an extension has moved to its
-- own: when it would have expired, and its member. It is put back; if it would have expired
-- by now, its credits go with those of the charge.
local function undo(op, c, p, t, moved)
  local member, expires
  if p.kind == 3 then member, expires = entry(c, p.entry, 0) end
  local ended, old = string.match(moved, '^(%d+) (.*)$')
  if t.untouched == nil then t.untouched = call('GET', c.key) == t.after end
  if t.untouched then
    if t.before == '' then
      copy(c, { kind = 0, level = 0, prev = 0, at = 0, unit = 0, step = 0, empty = 0, block = 0 })
      call('DEL', c.key)
    else
      call('SET', c.key, t.before, 'KEEPTTL')
      cells[op.key] = nil
    end
    expires = 0
  else
    if old and tonumber(ended) <= max(c.clock, c.at) then
      p = setmetatable({ cost = p.cost + cost_of(old) }, { __index = p })
    end
    if correct(c, p).granted > 0 then
      save(c)
      expires = 0
    end
  end
  if not member then return end
  local cost = cost_of(member)
  if old and expires == 0 then
    cost = cost - cost_of(old)
    call('ZADD', c.log, ended, old)
    call('ZREM', c.log, (string.gsub(old, '^(%d+ %d+ %d+) %d+', '%1 0'))) -- what the extension has left of it
  end
  withdraw(c, member, expires, p.history, cost)
end

answers = {}
for i, op in ipairs(rest) do
  local c, admission, forgotten = cell(op), ARGV[5 * i - 1], ARGV[5 * i]
  c.clock, c.test = op.clock, op.p.now > 0
  local register, named = string.match(admission, '^(%d+)( ?)')
  named = named == ' '
  if call('GET', KEYS[op.log + 1]) == register and (not named or call('GET', KEYS[op.log + 2]) == admission) then
    if not named then
      -- nothing is remembered
    elseif forgotten == '' then
      call('DEL', KEYS[op.log + 2])
    else
      call('SET', KEYS[op.log + 2], forgotten, 'KEEPTTL')
    end
    undo(op, c, op.p, texts[op.key], ARGV[5 * i + 1])
  end
  c = cell(op)
  local o = (i - 1) * 8
  answers[o + 1], answers[o + 2], answers[o + 3], answers[o + 4] = c.kind, c.level, c.prev, c.at
  answers[o + 5], answers[o + 6], answers[o + 7], answers[o + 8] = c.unit, c.step, c.empty, c.block
end
return answers
