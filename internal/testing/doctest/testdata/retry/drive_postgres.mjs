// drive_postgres.mjs URL RULE CALLERS CALLS pairs|takes: calls of retry_postgres.mjs
import { randomUUID } from 'node:crypto'
import { open, take, transaction } from './retry_postgres.mjs'

const [url, rule, callers, calls, what] = process.argv.slice(2)
const admitted = { a: 0, b: 0 }, errors = []
let attempts = 0
const options = what === 'pairs' ? '-c default_transaction_isolation=serializable' : undefined
const pool = open(url, options)
const connect = pool.connect.bind(pool)
pool.connect = () => { attempts++; return connect() }

async function pair(keys) {
  const ids = keys.map(() => randomUUID())
  return transaction(pool, async client => {
    const got = {}
    for (const [i, key] of keys.entries()) {
      const { rows } = await client.query('select allowed from headgate.take_once($1, $2, $3)', [ids[i], rule, key])
      got[key] = rows[0].allowed
    }
    return got
  }, 60_000)
}

async function caller(keys) {
  for (let i = 0; i < Number(calls); i++) {
    try {
      const got = what === 'pairs' ? await pair(keys) : { a: await take(pool, rule, 'a') }
      for (const key in got) admitted[key] += got[key]
    } catch (e) { errors.push(String(e)) }
  }
}

await Promise.all(Array.from({ length: Number(callers) }, (_, i) => caller(i % 2 ? ['a', 'b'] : ['b', 'a'])))
console.log(JSON.stringify({ admitted, repeated: attempts - callers * calls, errors }))
process.exit()
