// Takes from limits on MariaDB or MySQL, and repeats what conflicts or whose answer was lost.
// node retry_mysql.mjs mysql://root@localhost/app
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import mysql from 'mysql2/promise'

// Whether a transaction that ended so may be done again: a conflict, or a lost connection.
const again = e => [1213, 1205, 3101, 1020, 1180].includes(e.errno) || e.fatal || e.errno < 0

// Does work(connection) in a transaction, from its beginning after each conflict.
export async function transaction(pool, work, ms = 10_000) {
  for (let pause = 5, end = Date.now() + ms; ; pause = Math.min(2 * pause, 500)) {
    let connection
    try {
      connection = await pool.getConnection()
      await connection.beginTransaction()
      const result = await work(connection)
      await connection.commit()
      connection.release()
      return result
    } catch (e) {
      connection?.destroy() // and what was not committed
      if (!again(e) || Date.now() > end) throw e
    }
    await sleep(Math.random() * pause)
  }
}

export async function take(pool, rule, key, cost = '1') {
  const id = randomUUID() // the same at each attempt: it is charged once
  return transaction(pool, async connection => {
    const [results] = await connection.execute('CALL headgate_take_once(?, ?, ?, ?, 3600)', [id, rule, key, cost])
    return results[0][0].allowed === 1
  })
}

// Takes all of several charges, each of which has a rule, a key and a cost, or none of them.
export async function takeAll(pool, charges) {
  const id = randomUUID()
  const text = JSON.stringify(charges.map(({ rule, key, cost }) => ({ limit: rule, key, cost: String(cost) })))
  return transaction(pool, async connection => {
    const [results] = await connection.execute('CALL headgate_take_all_once(?, ?, 3600)', [id, text])
    return results[0][0].allowed === 1 // of the whole request
  })
}

if (process.argv[1].endsWith('retry_mysql.mjs')) {
  const pool = mysql.createPool(process.argv[2])
  console.log(await take(pool, 'fixed-window 100/1h', 'acme', '2'))
  console.log(await takeAll(pool, [{ rule: 'fixed-window 100/1h', key: 'alice', cost: '2.5' },
    { rule: 'fixed-window 50/1h', key: 'team', cost: 0.1 }]))
  await pool.end()
}
