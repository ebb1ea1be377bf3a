"""Takes from limits on MariaDB or MySQL, and repeats what conflicts or whose answer was lost.

python3 retry_mysql.py mysql://root@localhost/app
"""
import json, random, sys, time, uuid
from decimal import Decimal
from urllib.parse import urlsplit
import pymysql

CONFLICT = 1213, 1205, 3101, 1020
UNKNOWN = 1180, 1053, 2003, 2006, 2013, 0  # the commit or the connection was lost

def transaction(connect, work, seconds=10):
    """Does work(cursor) in a transaction, from its beginning after each conflict."""
    pause, end = 0.005, time.monotonic() + seconds
    while True:
        connection = None
        try:
            connection = connect()
            with connection.cursor() as cursor:
                result = work(cursor)
            connection.commit()
            return result
        except pymysql.MySQLError as e:
            if e.args[0] not in CONFLICT + UNKNOWN or time.monotonic() > end:
                raise
        finally:
            if connection:
                connection.close()  # rolls back what was not committed
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, 0.5)

def take(connect, rule, key, cost=1):
    id = str(uuid.uuid4())  # the same at each attempt: it is charged once
    def work(cursor):
        cursor.execute("CALL headgate_take_once(%s, %s, %s, %s, 3600)", (id, rule, key, cost))
        return bool(cursor.fetchone()[0])
    return transaction(connect, work)

def take_all(connect, *charges):
    """Takes all of several charges, each of which is a rule, a key and a cost, or none of them."""
    id = str(uuid.uuid4())
    text = json.dumps([{"limit": rule, "key": key, "cost": str(cost)} for rule, key, cost in charges])
    def work(cursor):
        cursor.execute("CALL headgate_take_all_once(%s, %s, 3600)", (id, text))
        return bool(cursor.fetchone()[[column[0] for column in cursor.description].index("allowed")])
    return transaction(connect, work)

if __name__ == "__main__":
    url = urlsplit(sys.argv[1])
    connect = lambda: pymysql.connect(host=url.hostname, port=url.port or 3306, user=url.username, database=url.path[1:])
    print(take(connect, "fixed-window 100/1h", "acme", 2))
    print(take_all(connect, ("fixed-window 100/1h", "alice", Decimal("2.5")), ("fixed-window 50/1h", "team", 0.1)))
