import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex as a contestant of zklock-bench: it does as it is told, line by line. */
public final class CuratorPeer {
    private final CuratorFramework client;
    /** Whether all threads of a path use one mutex object, or each has its own. */
    private final boolean shared;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private InterProcessMutex held;
    private final List<Future<Void>> waiters = new ArrayList<>();

    private CuratorPeer(String address, boolean shared) throws Exception {
        this.shared = shared;
        client = CuratorFrameworkFactory.newClient(address, 30_000, 15_000, new ExponentialBackoffRetry(100, 3));
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + address);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorPeer peer = new CuratorPeer(args[0], args[1].equals("shared"));
        say("{}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                say(peer.obey(line.split(" ")));
            } catch (Exception error) {
                error.printStackTrace();
                say("{\"error\":\"" + error.toString().replace('"', '\'').replace('\n', ' ') + "\"}");
            }
        }
        peer.client.close();
        System.exit(0);
    }

    private static void say(String answer) {
        System.out.println(answer);
        System.out.flush();
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "cycles":
                return cycles(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "holds":
                return holds(
                        Integer.parseInt(words[1]),
                        Long.parseLong(words[2]),
                        Long.parseLong(words[3]),
                        Long.parseLong(words[4]),
                        Long.parseLong(words[5]));
            case "hold":
                held = new InterProcessMutex(client, "/drained");
                held.acquire();
                return "{}";
            case "release":
                held.release();
                return "{}";
            case "queue":
                queue(Integer.parseInt(words[1]));
                return "{}";
            case "drained":
                for (Future<Void> waiter : waiters) {
                    waiter.get();
                }
                waiters.clear();
                return "{}";
            default:
                throw new IllegalArgumentException("the Curator peer does not know '" + words[0] + "'");
        }
    }

    private String cycles(String shape, int tasks, long millis) throws Exception {
        InterProcessMutex common = new InterProcessMutex(client, "/shared");
        long start = System.nanoTime();
        long end = start + millis * 1_000_000;
        List<Future<long[]>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            int number = task;
            running.add(threads.submit((Callable<long[]>) () -> {
                InterProcessMutex mutex = null;
                if (shape.equals("shared")) {
                    mutex = shared ? common : new InterProcessMutex(client, "/shared");
                } else if (!shape.equals("cold")) {
                    mutex = new InterProcessMutex(client, "/own-" + number);
                }
                long[] latencies = new long[1024];
                int cycles = 0;
                while (System.nanoTime() < end) {
                    if (shape.equals("cold")) {
                        mutex = new InterProcessMutex(client, "/cold/" + start + "-" + number + "-" + cycles);
                    }
                    if (cycles == latencies.length) {
                        latencies = Arrays.copyOf(latencies, 2 * cycles);
                    }
                    long asked = System.nanoTime();
                    mutex.acquire();
                    latencies[cycles++] = System.nanoTime() - asked;
                    mutex.release();
                    if (shape.equals("idle")) {
                        LockSupport.parkNanos(1_000_000);
                    }
                }
                return Arrays.copyOf(latencies, cycles);
            }));
        }
        int cycles = 0;
        List<long[]> parts = new ArrayList<>();
        for (Future<long[]> task : running) {
            parts.add(task.get());
            cycles += parts.get(parts.size() - 1).length;
        }
        long nanos = System.nanoTime() - start;
        long[] latencies = parts.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        return String.format(
                "{\"count\":%d,\"nanos\":%d,\"acquire_p50\":%d,\"acquire_p99\":%d}",
                cycles, nanos, percentile(latencies, 50), percentile(latencies, 99));
    }

    private static long percentile(long[] sorted, int percent) {
        int rank = Math.max(1, (sorted.length * percent + 99) / 100);
        return sorted.length == 0 ? 0 : sorted[rank - 1];
    }

    private String holds(int tasks, long holdMicros, long start, long stride, long end) throws Exception {
        InterProcessMutex common = new InterProcessMutex(client, "/shared");
        List<Future<String>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            long begin = start + task * stride;
            running.add(threads.submit(() -> {
                InterProcessMutex mutex = shared ? common : new InterProcessMutex(client, "/shared");
                sleepUntil(begin);
                StringBuilder holds = new StringBuilder();
                while (System.nanoTime() < end) {
                    mutex.acquire();
                    long granted = System.nanoTime();
                    sleepUntil(granted + holdMicros * 1_000);
                    long released = System.nanoTime();
                    mutex.release();
                    holds.append(holds.length() == 0 ? "" : ",");
                    holds.append('[').append(granted).append(',').append(released).append(']');
                }
                return holds.toString();
            }));
        }
        StringBuilder all = new StringBuilder("{\"holds\":[");
        boolean first = true;
        for (Future<String> task : running) {
            String holds = task.get();
            if (!holds.isEmpty()) {
                all.append(first ? "" : ",").append(holds);
                first = false;
            }
        }
        return all.append("]}").toString();
    }

    private static void sleepUntil(long nanos) {
        for (long left = nanos - System.nanoTime(); left > 0; left = nanos - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private void queue(int tasks) {
        InterProcessMutex common = new InterProcessMutex(client, "/drained");
        for (int task = 0; task < tasks; task++) {
            waiters.add(threads.submit((Callable<Void>) () -> {
                InterProcessMutex mutex = shared ? common : new InterProcessMutex(client, "/drained");
                mutex.acquire();
                mutex.release();
                return null;
            }));
        }
    }
}
