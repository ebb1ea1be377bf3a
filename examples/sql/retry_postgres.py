"""Takes from limits on PostgreSQL, and repeats what conflicts or whose answer was lost.

python3 retry_postgres.py postgres://localhost/app
"""
import random, sys, time, uuid
from decimal import Decimal
import psycopg

def again(e):
    """Whether a transaction that ended so may be done again: a conflict, or a lost connection."""
    state = e.sqlstate or ""
    return state in ("", "40001", "40P01") or state[:2] == "08" or state[:3] == "57P"

def transaction(connect, work, seconds=10):
    """Does work(connection) in a transaction, from its beginning after each conflict."""
    pause, end = 0.005, time.monotonic() + seconds
    while True:
        try:
            with connect() as connection:  # commits at its end; after an error, rolls back
                return work(connection)
        except psycopg.OperationalError as e:
            if not again(e) or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, 0.5)

def take(connect, rule, key, cost=1):
    id = str(uuid.uuid4())  # the same at each attempt: it is charged once
    return transaction(connect, lambda connection: connection.execute(
        "select allowed from headgate.take_once(%s, %s, %s, %s)", (id, rule, key, cost)).fetchone()[0])

def take_all(connect, *charges):
    """Takes all of several charges, each of which is a rule, a key and a cost, or none of them."""
    id = str(uuid.uuid4())
    rules, keys, costs = zip(*charges)
    costs = [Decimal(str(cost)) for cost in costs]  # psycopg sends floats as double precision
    return transaction(connect, lambda connection: connection.execute(
        "select bool_and(allowed) from headgate.take_all_once(%s, %s, %s, %s)",
        (id, list(rules), list(keys), costs)).fetchone()[0])

if __name__ == "__main__":
    connect = lambda: psycopg.connect(sys.argv[1])  # or a pool's .connection
    print(take(connect, "fixed-window 100/1h", "acme", 2))
    print(take_all(connect, ("fixed-window 100/1h", "alice", Decimal("2.5")), ("fixed-window 50/1h", "team", 0.1)))
