# drive_mysql.py URL[,URL] RULE CALLERS CALLS pairs|takes: calls of retry_mysql.py
import itertools, json, sys, threading, uuid
from urllib.parse import urlsplit
import pymysql
import retry_mysql

urls, rule, callers, calls, what = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
lock, admitted, errors, attempts = threading.Lock(), {"a": 0, "b": 0}, [], 0
nodes = itertools.cycle(urlsplit(url) for url in urls)

def connect():
    global attempts
    with lock:
        attempts += 1
        node = next(nodes)
    connection = pymysql.connect(host=node.hostname, port=node.port, user=node.username, database=node.path[1:])
    with connection.cursor() as cursor:
        if what == "pairs" and len(urls) == 1:
            cursor.execute("set session transaction isolation level serializable")
        if what == "waits":
            cursor.execute("set session innodb_lock_wait_timeout = 1")
    return connection

def pair(keys):
    ids = [str(uuid.uuid4()) for _ in keys]
    def work(cursor):
        got = {}
        for id, key in zip(ids, keys):
            cursor.execute("CALL headgate_take_once(%s, %s, %s, 1, 3600)", (id, rule, key))
            got[key] = cursor.fetchone()[0]
            while cursor.nextset(): pass
        return got
    return retry_mysql.transaction(connect, work, 60)

def caller(keys):
    for _ in range(calls):
        try:
            got = pair(keys) if what == "pairs" else {"a": retry_mysql.take(connect, rule, "a")}
            with lock:
                for key, allowed in got.items():
                    admitted[key] += allowed
        except Exception as e:
            errors.append(repr(e))

threads = [threading.Thread(target=caller, args=("ab" if i % 2 else "ba",)) for i in range(callers)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps({"admitted": admitted, "repeated": attempts - callers * calls, "errors": errors}))
