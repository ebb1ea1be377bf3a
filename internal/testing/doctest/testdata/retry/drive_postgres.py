# drive_postgres.py URL RULE CALLERS CALLS pairs|takes: calls of retry_postgres.py
import json, sys, threading, uuid
import psycopg
import retry_postgres

url, rule, callers, calls, what = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
lock, admitted, errors, attempts = threading.Lock(), {"a": 0, "b": 0}, [], 0

def connect():
    global attempts
    with lock:
        attempts += 1
    connection = psycopg.connect(url)
    if what == "pairs":
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    return connection

def pair(keys):
    ids = [str(uuid.uuid4()) for _ in keys]
    def work(connection):
        return {key: connection.execute("select allowed from headgate.take_once(%s, %s, %s)", (id, rule, key)).fetchone()[0]
                for id, key in zip(ids, keys)}
    return retry_postgres.transaction(connect, work, 60)

def caller(keys):
    for _ in range(calls):
        try:
            got = pair(keys) if what == "pairs" else {"a": retry_postgres.take(connect, rule, "a")}
            with lock:
                for key, allowed in got.items():
                    admitted[key] += allowed
        except Exception as e:
            errors.append(repr(e))

threads = [threading.Thread(target=caller, args=("ab" if i % 2 else "ba",)) for i in range(callers)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps({"admitted": admitted, "repeated": attempts - callers * calls, "errors": errors}))
