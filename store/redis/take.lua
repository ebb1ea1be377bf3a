-- Charges one key of a limit, or refuses: for redis-cli, and for programs in any language. Headgate
-- itself runs the part between BEGIN and END, so its charges and those of this script count
-- together.
--
-- KEYS
--   1  the cell of the key, headgate:c:{k:KEY}:LIMIT: headgate: is the prefix of the store, LIMIT is
--      the name of the limit, or its notation. In KEY, % is written %25, { is %7B and } is %7D.
--   2  its log, headgate:l:{k:KEY}:LIMIT. Only limits of kind 3 have one.
--
-- ARGV, in any order: NAME=NUMBER, whole numbers. "headgate schema redis args LIMIT" prints all but the
-- cost. What has a star must be there; else it is 0. Credits are what amounts are counted in.
--   cost      * what is charged, in credits
--   unit      * how many credits a cost of 1 is
--   kind      * 1: token-bucket, leaky-bucket, gcra, interval, fixed-window; 2: sliding-window;
--               3: sliding-log
--   capacity  * the most that can be in use at a time, in credits
--   step      * kind 1: in how many microseconds it drains once; 2: the length of the window, 3: for
--               how long a charge counts, in microseconds
--   drain     * kind 1: how many credits drain in a step; else 1
--   heal      * by how many microseconds the time of the cell may be ahead of the clock
--   anchor      kind 1: steps are counted from 0: the first charge; 1: the Unix epoch
--   block       for how many microseconds a refusal blocks the key
--   history     kind 3: for how many microseconds attempts are kept
--
-- Answered is a list: a name, a number, a name, a number. Times are microseconds since the Unix epoch.
--   granted        1: the cost was charged; 0: it was refused, and nothing was charged
--   used           what is in use now, in credits. (capacity - used) / unit remains, rounded down; nothing
--                  if it is below 0, or while the key is blocked.
--   clock          the time of the decision, by the server's clock
--   retry_at       of a refusal: when the cost can pass if nobody else comes; 9007199254740991: never
--   empty_at       from when on nothing is in use
--   blocked_until  until when the key is blocked, or 0
-- An error that begins with ERR has charged nothing: an argument is wrong. If no answer comes, the cost may
-- have been charged.

local asked = { {each ask: * = 0} }
local known = { cost = true, {each take: * = true} }
local function wrong(text) return redis.error_reply('ERR headgate: ' .. text) end

if #KEYS ~= 2 then return wrong('there are ' .. #KEYS .. ' keys, not 2') end
for _, argument in ipairs(ARGV) do
  local name, digits = string.match(argument, '^([a-z_]+)=(%d+)$')
  if not known[name] then return wrong(argument .. ' is not NAME=NUMBER with a known name') end
  asked[name] = tonumber(digits)
  if asked[name] > 9007199254740991 then return wrong(argument .. ' is above 9007199254740991') end
end
for _, name in ipairs({ 'cost', 'unit', 'kind', 'capacity', 'step', 'drain', 'heal' }) do
  if asked[name] < 1 then return wrong(name .. ' is missing, or is 0') end
end
if asked.kind > 3 then return wrong('kind is above 3') end
if asked.anchor > 1 then return wrong('anchor is above 1') end
asked.verb, asked.count = 1, 1

local ARGV = {
  -- see head.lua of store/redis: how long cells outlast what is in use, the most entries of a log, one decision for
  -- good, the place of the run; what is asked; the run
  struct.pack('<dddd', {slack}, {history}, 0, 33 + 8 * {ask.width}) .. struct.pack('<{ask.width * d}', {each ask: asked.*})
    .. struct.pack('<ddddd', 33, 1, asked.kind == 1 and 0 or 1, asked.kind == 3 and 2 or 0, 0),
}
local function decide()
-- BEGIN
{script}
-- END
end

local answer = decide()
local a = { granted = 1, clock = struct.unpack('<d', answer), retry_at = 0, blocked_until = 0, status = 0 }
if string.sub(answer, 9, 9) == '=' then
  {each out: a.*} = struct.unpack('<{out.width * d}', answer, 10)
else -- the text of a cell
  a.used, a.empty_at = string.match(answer, '^%d+ (%d+) %d+ %d+ %d+ %d+ (%d+) ', 9)
end
return {
  'granted', a.granted, 'used', a.used + 0, 'clock', a.clock, 'retry_at', a.retry_at, 'empty_at', a.empty_at + 0,
  'blocked_until', a.blocked_until,
}
