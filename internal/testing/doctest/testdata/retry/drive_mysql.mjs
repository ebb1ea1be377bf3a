// drive_mysql.mjs URL[,URL] RULE CALLERS CALLS pairs|takes: calls of retry_mysql.mjs
import { randomUUID } from 'node:crypto'
import mysql from 'mysql2/promise'
import { take, transaction } from './retry_mysql.mjs'

const [urls, rule, callers, calls, what] = process.argv.slice(2)
const admitted = { a: 0, b: 0 }, errors = []
let attempts = 0
const pools = urls.split(',').map(uri => mysql.createPool({ uri, connectionLimit: Number(callers) }))
const pool = {
  async getConnection() {
    const connection = await pools[attempts++ % pools.length].getConnection()
    if (what === 'pairs' && pools.length === 1) await connection.query('set session transaction isolation level serializable')
    if (what === 'waits') await connection.query('set session innodb_lock_wait_timeout = 1')
    return connection
  },
}

async function pair(keys) {
  const ids = keys.map(() => randomUUID())
  return transaction(pool, async connection => {
    const got = {}
    for (const [i, key] of keys.entries()) {
      const [results] = await connection.execute('CALL headgate_take_once(?, ?, ?, 1, 3600)', [ids[i], rule, key])
      got[key] = results[0][0].allowed
    }
    return got
  }, 60_000)
}

async function caller(keys) {
  for (let i = 0; i < Number(calls); i++) {
    try {
      const got = what === 'pairs' ? await pair(keys) : { a: await take(pool, rule, 'a') }
      for (const key in got) admitted[key] += Number(got[key])
    } catch (e) { errors.push(String(e)) }
  }
}

await Promise.all(Array.from({ length: Number(callers) }, (_, i) => caller(i % 2 ? ['a', 'b'] : ['b', 'a'])))
console.log(JSON.stringify({ admitted, repeated: attempts - callers * calls, errors }))
process.exit()
