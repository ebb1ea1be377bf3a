// calls.mjs URL: each function for several charges, and others, with parameters as node-pg sends them, as text.
import pg from 'pg'

const client = new pg.Client(process.argv[2])
await client.connect()
let queries = 0
const one = async (text, ...values) => {
  const { rows } = await client.query({ name: `q${queries++}`, text, values, rowMode: 'array' }) // prepared
  return rows[0].map(String)
}
const rules = ['wide', 'narrow'], both = ['narrow', 'middle'], keys = ['js', 'js'], big = 1000000000000001
console.log(JSON.stringify({
  'take_all decimals': await one('select bool_and(allowed), min(remaining) from headgate.take_all($1, $2, $3)', both, keys, ['0.5', 1.25]),
  'take_all integers': await one('select bool_and(allowed), max(remaining) from headgate.take_all($1, $2, $3)', rules, keys, [big, 1]),
  'take_all_once': await one('select bool_and(allowed), bool_or(replayed) from headgate.take_all_once($1, $2, $3, $4)', 'js', both, ['js2', 'js2'], [1, 2]),
  'extend_all': await one('select bool_and(allowed), sum(charged) from headgate.extend_all($1, $2, $3, $4)', 'js', both, ['js2', 'js2'], [1.5, 2]),
  'settle_all': await one('select sum(corrected) from headgate.settle_all($1, $2, $3, $4)', 'js', both, ['js2', 'js2'], [0.5, 2]),
  'reserve_all': await one("select bool_and(allowed), max(delay)::text from headgate.reserve_all($1, $2, $3, $4)", rules, ['js3', 'js3'], [1, 2], '30 seconds'),
  'take_up_to': await one('select accepted from headgate.take_up_to($1, $2, $3)', 'narrow', 'js4', 1000),
  'take_float': await one('select allowed, remaining from headgate.take_float($1, $2, $3)', 'wide', 'js5', big),
  'enforce': await one('select allowed from headgate.enforce($1, $2, $3)', 'narrow', 'js6', 1.5),
}))
await client.end()
