import java.math.BigDecimal;
import java.sql.*;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Takes from limits on PostgreSQL and on MariaDB, and repeats what conflicts or whose answer was lost.
 *
 * java -cp postgresql.jar Retry.java 'jdbc:postgresql://localhost/app'
 */
public class Retry {
    interface Connecting { Connection open() throws SQLException; } // such as a DataSource
    interface Work<T> { T in(Connection c) throws SQLException; }

    static final String POSTGRESQL = "select allowed from headgate.take_once(?, ?, ?, ?)";
    static final String MARIADB = "CALL headgate_take_once(?, ?, ?, ?, 3600)";
    static final String ALL_POSTGRESQL = "select allowed from headgate.take_all_once(?, ?, ?, ?)";
    static final String ALL_MARIADB = "CALL headgate_take_all_once(?, ?, 3600)";

    /** Whether a transaction that ended so may be done again: a conflict, or a lost connection. */
    static boolean again(SQLException e) {
        String state = e.getSQLState() == null ? "" : e.getSQLState();
        return state.matches("|40001|40P01|08...|57P..") || Set.of(1213, 1205, 3101, 1020, 1180).contains(e.getErrorCode());
    }

    /** Does the work in a transaction, from its beginning after each conflict. */
    static <T> T transaction(Connecting from, Work<T> work, int seconds) throws SQLException, InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        for (long pause = 5; ; pause = Math.min(2 * pause, 500)) {
            try (Connection c = from.open()) {
                c.setAutoCommit(false);
                try {
                    T result = work.in(c);
                    c.commit();
                    return result;
                } catch (SQLException e) {
                    if (!c.isClosed()) c.rollback();
                    throw e;
                }
            } catch (SQLException e) {
                if (!again(e) || System.nanoTime() > end) throw e;
            }
            Thread.sleep(ThreadLocalRandom.current().nextLong(pause));
        }
    }

    static boolean take(Connecting from, String call, String rule, String key, BigDecimal cost) throws SQLException, InterruptedException {
        String id = UUID.randomUUID().toString(); // the same at each attempt: it is charged once
        return transaction(from, c -> {
            try (PreparedStatement take = c.prepareStatement(call)) {
                take.setString(1, id);
                take.setString(2, rule);
                take.setString(3, key);
                take.setBigDecimal(4, cost);
                try (ResultSet row = take.executeQuery()) {
                    row.next();
                    return row.getBoolean("allowed");
                }
            }
        }, 10);
    }

    record Charge(String rule, String key, BigDecimal cost) {
        /** The charge as JSON, of a rule and a key without quotes and backslashes. */
        String json() { return "{\"limit\": \"" + rule + "\", \"key\": \"" + key + "\", \"cost\": \"" + cost.toPlainString() + "\"}"; }
    }

    /** Takes all of several charges, or none of them. */
    static boolean takeAll(Connecting from, boolean postgresql, Charge... charges) throws SQLException, InterruptedException {
        String id = UUID.randomUUID().toString();
        return transaction(from, c -> {
            try (PreparedStatement take = c.prepareStatement(postgresql ? ALL_POSTGRESQL : ALL_MARIADB)) {
                take.setString(1, id);
                if (postgresql) {
                    take.setArray(2, c.createArrayOf("text", Stream.of(charges).map(Charge::rule).toArray()));
                    take.setArray(3, c.createArrayOf("text", Stream.of(charges).map(Charge::key).toArray()));
                    take.setArray(4, c.createArrayOf("numeric", Stream.of(charges).map(Charge::cost).toArray()));
                } else {
                    take.setString(2, Stream.of(charges).map(Charge::json).collect(Collectors.joining(", ", "[", "]")));
                }
                try (ResultSet row = take.executeQuery()) {
                    row.next();
                    return row.getBoolean("allowed"); // of the whole request
                }
            }
        }, 10);
    }

    public static void main(String[] url) throws Exception {
        boolean postgresql = url[0].startsWith("jdbc:postgresql:");
        Connecting from = () -> DriverManager.getConnection(url[0]);
        System.out.println(take(from, postgresql ? POSTGRESQL : MARIADB, "fixed-window 100/1h", "acme", new BigDecimal("2")));
        System.out.println(takeAll(from, postgresql, new Charge("fixed-window 100/1h", "alice", new BigDecimal("2.5")),
            new Charge("fixed-window 50/1h", "team", BigDecimal.valueOf(0.1)))); // valueOf: the shortest decimal of a double
    }
}
