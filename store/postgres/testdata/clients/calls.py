# calls.py URL: each function for several charges, and others, with parameters whose types psycopg chooses.
import json, sys
from datetime import timedelta
from decimal import Decimal
import psycopg

connection = psycopg.connect(sys.argv[1], autocommit=True, prepare_threshold=0)

def one(sql, *args):
    return [str(v) for v in connection.execute(sql, args).fetchone()]

rules, both, keys = ["wide", "narrow"], ["narrow", "middle"], ["py", "py"]
big = 10**15 + 1
print(json.dumps({
    "take_all decimals": one("select bool_and(allowed), min(remaining) from headgate.take_all(%s, %s, %s)", both, keys, [Decimal("0.5"), Decimal("1.25")]),
    "take_all integers": one("select bool_and(allowed), max(remaining) from headgate.take_all(%s, %s, %s)", rules, keys, [big, 1]),
    "take_all_once": one("select bool_and(allowed), bool_or(replayed) from headgate.take_all_once(%s, %s, %s, %s)", "py", both, ["py2", "py2"], [Decimal(1), Decimal(2)]),
    "extend_all": one("select bool_and(allowed), sum(charged) from headgate.extend_all(%s, %s, %s, %s)", "py", both, ["py2", "py2"], [Decimal("1.5"), Decimal(2)]),
    "settle_all": one("select sum(corrected) from headgate.settle_all(%s, %s, %s, %s)", "py", both, ["py2", "py2"], [Decimal("0.5"), Decimal(2)]),
    "reserve_all": one("select bool_and(allowed), max(delay) from headgate.reserve_all(%s, %s, %s, %s)", rules, ["py3", "py3"], [1, 2], timedelta(seconds=30)),
    "take_up_to": one("select accepted from headgate.take_up_to(%s, %s, %s)", "narrow", "py4", 1000),
    "take_float": one("select allowed, remaining from headgate.take_float(%s, %s, %s)", "wide", "py5", float(big)),
    "enforce": one("select allowed from headgate.enforce(%s, %s, %s)", "narrow", "py6", Decimal("1.5")),
}))
