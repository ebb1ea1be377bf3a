import java.math.BigDecimal;
import java.sql.*;
import java.util.*;
import java.util.concurrent.atomic.*;

/** Drive URL RULE CALLERS CALLS pairs|takes|waits: calls of Retry. */
public class Drive {
    public static void main(String[] args) throws Exception {
        String url = args[0], rule = args[1], what = args[4];
        int callers = Integer.parseInt(args[2]), calls = Integer.parseInt(args[3]);
        String call = url.startsWith("jdbc:postgresql:") ? Retry.POSTGRESQL : Retry.MARIADB;
        AtomicInteger attempts = new AtomicInteger();
        Map<String, AtomicInteger> admitted = Map.of("a", new AtomicInteger(), "b", new AtomicInteger());
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        Retry.Connecting from = () -> {
            attempts.incrementAndGet();
            Connection c = DriverManager.getConnection(url);
            if (what.equals("pairs")) c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            if (what.equals("waits")) try (Statement s = c.createStatement()) { s.execute("set session innodb_lock_wait_timeout = 1"); }
            return c;
        };
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            List<String> keys = i % 2 == 0 ? List.of("a", "b") : List.of("b", "a");
            threads.add(new Thread(() -> {
                for (int j = 0; j < calls; j++) {
                    try {
                        if (!what.equals("pairs")) {
                            if (Retry.take(from, call, rule, "a", BigDecimal.ONE)) admitted.get("a").incrementAndGet();
                            continue;
                        }
                        pair(from, call, rule, keys).forEach((key, allowed) -> { if (allowed) admitted.get(key).incrementAndGet(); });
                    } catch (Exception e) { errors.add('"' + e.toString().replaceAll("[^ -!#-Z^-~]", " ") + '"'); }
                }
            }));
        }
        for (Thread t : threads) t.start();
        for (Thread t : threads) t.join();
        System.out.printf("{\"admitted\":{\"a\":%s,\"b\":%s},\"repeated\":%d,\"errors\":%s}%n", admitted.get("a"), admitted.get("b"),
            attempts.get() - callers * calls, errors);
    }

    static Map<String, Boolean> pair(Retry.Connecting from, String call, String rule, List<String> keys) throws Exception {
        Map<String, String> ids = new HashMap<>();
        for (String key : keys) ids.put(key, UUID.randomUUID().toString());
        return Retry.transaction(from, c -> {
            Map<String, Boolean> got = new HashMap<>();
            for (String key : keys) {
                try (PreparedStatement take = c.prepareStatement(call)) {
                    take.setString(1, ids.get(key));
                    take.setString(2, rule);
                    take.setString(3, key);
                    take.setBigDecimal(4, BigDecimal.ONE);
                    try (ResultSet row = take.executeQuery()) {
                        row.next();
                        got.put(key, row.getBoolean("allowed"));
                    }
                }
            }
            return got;
        }, 60);
    }
}
