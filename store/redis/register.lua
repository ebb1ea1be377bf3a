-- What cells remember of requests with an ID: law/admission.go.
--
-- Each admission is a key of its own, so that it expires by itself and a cell that
-- thousands use needs no pruning. A reset has to forget those of its cell, and
-- cannot name them. So the cell has a register: a number, in a key that lives as
-- long as any admission of the cell. They bear it, a reset makes it another, and
-- what bears another is forgotten. A request on trial reads the number too: see remember
-- in apply.lua.
--
-- Of an op with an ID, KEYS from its log on are log, register and admission.

local NUMBERS = string.rep(int .. ' ', {out.width} - 1) .. int

-- known returns what the cell remembers of the ID of an op; nil if nothing.
-- shared: another request has been told of it, see once.lua and extend.lua.
local function known(op)
  local v = call('GET', KEYS[op.log + 2])
  if not v then return nil end
  local a = {}
  a.register, a.print, a.cost, a.settled, a.keep, a.shared, a.rule, a.outcome =
    string.match(v, '^(%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d) ([^|]*)|(.*)$')
  if a.register ~= call('GET', KEYS[op.log + 1]) or a.keep + 0 <= op.clock then return nil end
  a.cost, a.settled = a.cost + 0, a.settled + 0
  return a
end

-- numbers returns those of the remembered outcome; then what returns each of the four that
-- follow where the request was extended: see Extension of package law.
local function numbers(a)
  local n, v = {}, string.gmatch(a.outcome, '%d+')
  {each out: n.*} = {each out: v() + 0}
  return n, v
end

-- put writes an admission, for so many ms, and its register for at least as many;
-- nil: for as long as was promised before.
local function put(op, a, ms)
  local register, admission = KEYS[op.log + 1], KEYS[op.log + 2]
  local v = fmt('%s %s %.0f %.0f %s %s %s|', a.register, a.print, a.cost, a.settled, a.keep, a.shared, a.rule) .. a.outcome
  if not ms then
    call('SET', admission, v, 'KEEPTTL')
    return
  end
  call('SET', admission, v, 'PX', ms)
  if call('PTTL', register) < tonumber(ms) then call('PEXPIRE', register, ms) end
end
