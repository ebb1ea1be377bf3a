// Takes from limits on PostgreSQL, and repeats what conflicts or whose answer was lost.
// node retry_postgres.mjs postgres://localhost/app
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

export function open(connectionString, options) {
  const pool = new pg.Pool({ connectionString, options })
  pool.on('error', () => {})                                 // an idle connection breaks
  pool.on('connect', client => client.on('error', () => {})) // one in use: its query fails as well
  return pool
}

// Whether a transaction that ended so may be done again: a conflict, or a lost connection.
const again = e => !/^[0-9A-Z]{5}$/.test(e.code ?? '') || /^(40001|40P01|08|57P)/.test(e.code)

// Does work(client) in a transaction, from its beginning after each conflict.
export async function transaction(pool, work, ms = 10_000) {
  for (let pause = 5, end = Date.now() + ms; ; pause = Math.min(2 * pause, 500)) {
    let client
    try {
      client = await pool.connect()
      await client.query('begin')
      const result = await work(client)
      await client.query('commit')
      client.release()
      return result
    } catch (e) {
      client?.release(true) // ends the connection, and what was not committed
      if (!again(e) || Date.now() > end) throw e
    }
    await sleep(Math.random() * pause)
  }
}

export async function take(pool, rule, key, cost = '1') {
  const id = randomUUID() // the same at each attempt: it is charged once
  return transaction(pool, async client => {
    const { rows } = await client.query('select allowed from headgate.take_once($1, $2, $3, $4)', [id, rule, key, cost])
    return rows[0].allowed
  })
}

// Takes all of several charges, each of which has a rule, a key and a cost, or none of them. A cost may be a number
// or, with more than 15 digits, a text.
export async function takeAll(pool, charges) {
  const id = randomUUID()
  return transaction(pool, async client => {
    const { rows } = await client.query('select allowed from headgate.take_all_once($1, $2, $3, $4)',
      [id, charges.map(c => c.rule), charges.map(c => c.key), charges.map(c => String(c.cost))])
    return rows[0].allowed // of the whole request
  })
}

if (process.argv[1].endsWith('retry_postgres.mjs')) {
  const pool = open(process.argv[2])
  console.log(await take(pool, 'fixed-window 100/1h', 'acme', '2'))
  console.log(await takeAll(pool, [{ rule: 'fixed-window 100/1h', key: 'alice', cost: '2.5' },
    { rule: 'fixed-window 50/1h', key: 'team', cost: 0.1 }]))
  await pool.end()
}
