-- Requests with an ID: what law/admission.go does with them, line by line.

local REPLAYED, REUSED, UNKNOWN, SETTLED = 2, 3, 4, 5 -- see law.Numbers
local UNSETTLED, CANCELLED = -1, -2

-- replay answers an op with the numbers that it was answered with before.
local function replay(op, n)
  n.clock, n.retry_at, n.status = op.clock, 0, REPLAYED
  answers[op.at + 1] = pack(ANSWER, '=', {each out: n.*})
end

-- admit remembers an op that was admitted, with its answer.
local function admit(op, print)
  local register = KEYS[op.log + 1]
  local keep = max(op.clock, (select(1 + {out.start_at}, unpack(ANSWER, answers[op.at + 1])))) + op.p.ttl
  local ms = life(keep, op.clock, op.p.now > 0)
  local number = call('GET', register)
  if not number then
    number = fmt(int, store_clock) -- those that bore one before have expired with it
    call('SET', register, number, 'PX', ms)
  end
  put(op, {
    register = number, print = print, rule = ARGV[op.note + 2], cost = op.p.count * op.p.cost, settled = UNSETTLED,
    keep = fmt(int, keep), shared = 0, outcome = fmt(NUMBERS, select(2, unpack(ANSWER, answers[op.at + 1]))),
  }, ms)
end

-- fail_all fails the request of the ops from i to j, also its other alternatives.
local function fail_all(i, j, how)
  while rest[i - 1] and rest[i - 1].group == rest[i].group do i = i - 1 end
  while rest[j + 1] and rest[j + 1].group == rest[j].group do j = j + 1 end
  for k = i, j do answer(rest[k], 0, NONE, 0, 0, 0, 0, how, 0) end
end

-- apply_once decides the ops from i to j but for those that are known; all of them
-- where they start late and one is not known.
local function apply_once(i, j)
  local new, print, starts = {}, ARGV[rest[i].note + 1], rest[i].p.deferred
  for k = i, j do
    local op = rest[k]
    local a = known(op)
    if a and a.settled ~= CANCELLED then starts = starts or numbers(a).start_at > 0 end
    if not a or a.settled == CANCELLED then
      new[#new + 1] = op
    elseif a.print ~= print then
      fail_all(i, j, REUSED)
      return
    else
      replay(op, numbers(a))
      op.remembered = true
      if on_trial and a.shared == '0' then -- it is not for another to give back any more
        a.shared = '1'
        put(op, a)
      end
    end
  end
  if starts and #new > 0 and #new <= j - i then
    new = {}
    for k = i, j do new[#new + 1] = rest[k] end
  end
  if #new > 0 and group(new, 1, #new) then
    for _, op in ipairs(new) do
      op.forgotten = on_trial and call('GET', KEYS[op.log + 2])
      admit(op, print)
      op.remembered = true
    end
  end
end

-- apply_settle makes the costs of the ops from i to j those of the admissions of
-- their ID, all or none of them. Of a limit that was changed since nothing is
-- corrected. A cell may be gone while an ID is known.
local function apply_settle(i, j)
  local as = {}
  for k = i, j do
    local a = known(rest[k])
    if not a or a.settled ~= UNSETTLED and a.settled ~= rest[k].p.cost then
      fail_all(i, j, a and SETTLED or UNKNOWN)
      return
    end
    as[k] = a
  end
  local stale = false
  for k = i, j do
    local op, c = rest[k], cell(rest[k])
    c.clock, c.test = op.clock, op.p.now > 0
    stale = stale or is_stale(op.p, max(c.clock, c.at))
  end
  for k = i, j do
    local op, a = rest[k], as[k]
    local c, p = cell(op), op.p
    if stale then
      answer(op, 0, c, 0, 0, 0, 0, STALE, max(c.clock, c.at))
    elseif a.settled ~= UNSETTLED then
      answer(op, 0, c, 0, 0, 0, 0, REPLAYED)
    else
      local n, following = numbers(a)
      a.settled = p.cost
      put(op, a)
      if a.rule ~= ARGV[op.note] then
        answer(op, 0, c, 0, 0)
      else
        local unused, given, extended = a.cost - max(p.cost, 0), 0, tonumber(following() or 0)
        if extended > 0 then -- the last extension is given back first
          local last = { level = following() + 0, at = following() + 0, prev = following() + 0, entry = 0 }
          if unused <= extended then
            n = last
          else
            local before = c.prev
            given = correct(c, setmetatable({
              cost = extended, count = 1, level = last.level, returned = last.prev, at = last.at,
            }, { __index = p })).granted
            unused, n.prev = unused - extended, n.prev + c.prev - before
          end
        end
        back(op, c, setmetatable({
          cost = unused, count = 1, level = n.level, returned = n.prev, at = n.at, entry = n.entry,
        }, { __index = p }), given)
      end
    end
  end
end
