// The workloads on Netty, as far as it has them: one measurement per process, one line of JSON.
//
//     java -cp ... Compare <workload> [key=value ...]
//
// Definitions and figures are those of the Rust side. A task is a Runnable here, for Netty has no futures
// that are polled. What runs in a JVM needs a longer warm-up: here it is a second.

import io.netty.channel.EventLoop;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.concurrent.Future;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

public final class Compare {
    private static final long WARM_UP_NANOS = 1_000_000_000;
    private static Map<String, Long> params = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            String[] pair = args[i].split("=");
            params.put(pair[0], Long.parseLong(pair[1]));
        }
        switch (args[0]) {
            case "w1": case "w1.execute": case "w1.detached": outside(1, false); break;
            case "w1.two_types": outside(1, true); break;
            case "w1.joined": joined(1); break;
            case "w2": spawn(); break;
            case "w3": yields(); break;
            case "w4": pingPong(); break;
            case "w5": across(); break;
            case "w6": case "w6.execute": case "w6.detached": outside(4, false); break;
            case "w6.two_types": outside(4, true); break;
            case "w6.joined": joined(4); break;
            case "w7.churn": churn(); break;
            case "w7.lateness": lateness(); break;
            case "w8": Servers.echo(); break;
            case "w10.idle": Servers.idle(); break;
            case "w10.rate": Servers.rate(); break;
            case "w12.wake": wake(); break;
            case "w12.idle": idle(); break;
            case "w16": Servers.uneven(); break;
            default: cannot("a Runnable that is queued does not wait: there are no tasks to suspend");
        }
        Runtime.getRuntime().halt(0);
    }

    static int get(String key) {
        return params.get(key).intValue();
    }

    static EventLoop loop() {
        EventLoop loop = new NioEventLoopGroup(1).next();
        loop.submit(() -> {}).syncUninterruptibly(); // its thread starts with the first task
        return loop;
    }

    /** Prints pairs of names and numbers. */
    static void figures(Object... pairs) {
        StringBuilder text = new StringBuilder("{\"figures\": {");
        for (int i = 0; i < pairs.length; i += 2) {
            text.append(i == 0 ? "" : ", ").append('"').append(pairs[i]).append("\": ").append(pairs[i + 1]);
        }
        System.out.println(text.append("}}"));
    }

    static void cannot(String reason) {
        System.out.println("{\"cannot\": \"" + reason + "\"}");
    }

    static double quantile(double[] samples, double part) {
        double[] sorted = samples.clone();
        Arrays.sort(sorted);
        return sorted[(int) Math.round((sorted.length - 1) * part)];
    }

    interface Round {
        void run() throws Exception;
    }

    /** Nanoseconds per operation, the median of the rounds after the warm-up. */
    static double time(long operations, Round round) throws Exception {
        int reps = get("reps");
        double[] samples = new double[reps];
        long warm = System.nanoTime() + WARM_UP_NANOS;
        while (System.nanoTime() < warm) {
            round.run();
        }
        for (int i = 0; i < reps; i++) {
            long start = System.nanoTime();
            round.run();
            samples[i] = (double) (System.nanoTime() - start) / operations;
        }
        return quantile(samples, 0.5);
    }

    static void outside(int producers, boolean twoTypes) throws Exception {
        EventLoop loop = loop();
        int share = get("tasks") / producers;
        int tasks = share * producers;
        figures("task_ns", time(tasks, () -> {
            CountDownLatch done = new CountDownLatch(1);
            long[] left = {tasks}; // the loop's own
            Runnable task = () -> {
                if (--left[0] == 0) {
                    done.countDown();
                }
            };
            Runnable produce = () -> {
                for (int i = 0; i < share; i++) {
                    if (twoTypes && i % 2 == 1) {
                        loop.execute(() -> Objects.requireNonNull(task).run()); // another class
                    } else {
                        loop.execute(() -> task.run());
                    }
                }
            };
            for (int i = 1; i < producers; i++) {
                new Thread(produce).start();
            }
            produce.run();
            done.await();
        }));
    }

    /** Futures that are kept, and waited for at the end by the thread that has them. */
    static void joined(int producers) throws Exception {
        EventLoop loop = loop();
        int share = get("tasks") / producers;
        figures("task_ns", time((long) share * producers, () -> {
            long[] count = {0}; // the loop's own
            Runnable produce = () -> {
                List<Future<?>> handles = new ArrayList<>(share);
                for (int i = 0; i < share; i++) {
                    handles.add(loop.submit(() -> count[0]++));
                }
                for (Future<?> handle : handles) {
                    handle.syncUninterruptibly();
                }
            };
            List<Thread> others = new ArrayList<>();
            for (int i = 1; i < producers; i++) {
                Thread other = new Thread(produce);
                other.start();
                others.add(other);
            }
            produce.run();
            for (Thread other : others) {
                other.join();
            }
        }));
    }

    /** Runs a round's body on the loop: it calls `done` when all it queued has run. */
    interface OnLoop {
        void run(EventLoop loop, Runnable done);
    }

    static double onLoop(long operations, OnLoop body) throws Exception {
        EventLoop loop = loop();
        return time(operations, () -> {
            CountDownLatch done = new CountDownLatch(1);
            loop.execute(() -> body.run(loop, done::countDown));
            done.await();
        });
    }

    static void spawn() throws Exception {
        int batches = get("batches");
        int batch = get("batch");
        double joined = onLoop((long) batches * batch, (loop, done) -> joinedBatch(loop, batches, batch, done));
        double detached = onLoop((long) batches * batch, (loop, done) -> detachedBatch(loop, batches, batch, done));
        figures("joined_ns", joined, "detached_ns", detached);
    }

    static void joinedBatch(EventLoop loop, int batches, int batch, Runnable done) {
        List<Future<Integer>> handles = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            int place = i;
            handles.add(loop.submit(() -> place));
        }
        int[] left = {batch};
        for (Future<Integer> handle : handles) {
            handle.addListener(it -> {
                if (--left[0] == 0) {
                    nextBatch(loop, batches, done, () -> joinedBatch(loop, batches - 1, batch, done));
                }
            });
        }
    }

    static void detachedBatch(EventLoop loop, int batches, int batch, Runnable done) {
        int[] left = {batch};
        for (int i = 0; i < batch; i++) {
            loop.execute(() -> {
                if (--left[0] == 0) {
                    nextBatch(loop, batches, done, () -> detachedBatch(loop, batches - 1, batch, done));
                }
            });
        }
    }

    static void nextBatch(EventLoop loop, int batches, Runnable done, Runnable next) {
        if (batches == 1) {
            done.run();
        } else {
            loop.execute(next);
        }
    }

    static void yields() throws Exception {
        int tasks = get("tasks");
        int turns = get("yields");
        figures("yield_ns", onLoop((long) tasks * turns, (loop, done) -> {
            int[] live = {tasks};
            for (int i = 0; i < tasks; i++) {
                loop.execute(new Runnable() {
                    int left = turns;

                    @Override
                    public void run() {
                        if (left-- > 0) {
                            loop.execute(this);
                        } else if (--live[0] == 0) {
                            done.run();
                        }
                    }
                });
            }
        }));
    }

    static void pingPong() throws Exception {
        int trips = get("trips");
        figures("trip_ns", onLoop(trips, (loop, done) -> {
            Runnable[] ends = new Runnable[2];
            int[] left = {trips};
            ends[0] = () -> loop.execute(ends[1]);
            ends[1] = () -> {
                if (--left[0] == 0) {
                    done.run();
                } else {
                    loop.execute(ends[0]);
                }
            };
            loop.execute(ends[0]);
        }));
    }

    static void across() throws Exception {
        if (get("apart") == 1) {
            cannot("on two cores: the JVM does not bind single threads to cores");
            return;
        }
        EventLoop one = loop();
        EventLoop other = loop();
        int trips = get("trips");
        int warmUp = Math.max(trips, 2_000);
        double[] micros = new double[trips];
        CountDownLatch done = new CountDownLatch(1);
        Runnable[] ends = new Runnable[2];
        long[] start = {0};
        int[] trip = {-warmUp - 1};
        ends[1] = () -> one.execute(ends[0]);
        ends[0] = () -> {
            long now = System.nanoTime();
            if (trip[0] >= 0) {
                micros[trip[0]] = (now - start[0]) / 1e3;
            }
            if (++trip[0] == trips) {
                done.countDown();
                return;
            }
            start[0] = System.nanoTime();
            other.execute(ends[1]);
        };
        one.execute(ends[0]);
        done.await();
        figures("p50_us", quantile(micros, 0.5), "p99_us", quantile(micros, 0.99));
    }

    static void churn() throws Exception {
        int live = get("live");
        int timers = get("timers");
        Future<?>[] places = new Future<?>[live];
        boolean[] far = {get("far") == 1};
        figures("timer_ns", onLoop(timers, (loop, done) -> {
            if (far[0]) {
                far[0] = false;
                loop.schedule(() -> {}, 1, TimeUnit.HOURS);
            }
            for (int number = 0; number < timers; number++) {
                int place = number % live;
                if (places[place] != null) {
                    places[place].cancel(false);
                }
                long micros = 10_000_000 + number * 61_803L % 20_000_000;
                places[place] = loop.schedule(() -> {}, micros, TimeUnit.MICROSECONDS);
            }
            done.run();
        }));
    }

    static void lateness() throws Exception {
        EventLoop loop = loop();
        int sleeps = get("sleeps");
        long span = get("millis") * 1_000_000L;
        double[] micros = new double[sleeps];
        long cpu = Servers.cpu();
        CountDownLatch done = new CountDownLatch(1);
        long[] left = {sleeps, 0};
        loop.execute(() -> {
            long start = System.nanoTime() + 200_000_000;
            for (long number = 0; number < sleeps; number++) {
                long deadline = start + number * 61_803 % sleeps * span / sleeps;
                int place = (int) number;
                loop.schedule(() -> {
                    long late = System.nanoTime() - deadline;
                    micros[place] = late / 1e3;
                    left[1] += late < 0 ? 1 : 0;
                    if (--left[0] == 0) {
                        done.countDown();
                    }
                }, deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            }
        });
        done.await();
        if (left[1] > 0) {
            cannot(left[1] + " of " + sleeps + " timers were early");
            return;
        }
        figures("p50_us", quantile(micros, 0.5), "p99_us", quantile(micros, 0.99),
                "cpu_ms", (Servers.cpu() - cpu) / 1e6);
    }

    static void wake() throws Exception {
        EventLoop loop = loop();
        int wakes = get("wakes");
        double[] delays = new double[wakes];
        double[] calls = new double[wakes];
        AtomicLong woken = new AtomicLong();
        for (int i = -200; i < wakes; i++) {
            Thread.sleep(0, 500_000);
            woken.set(0);
            long start = System.nanoTime();
            loop.execute(() -> woken.set(System.nanoTime()));
            long called = System.nanoTime();
            while (woken.get() == 0) {
                Thread.sleep(0, 50_000);
            }
            if (i >= 0) {
                delays[i] = (woken.get() - start) / 1e3;
                calls[i] = (called - start) / 1e3;
            }
        }
        figures("p50_us", quantile(delays, 0.5), "call_us", quantile(calls, 0.5));
    }

    static void idle() throws Exception {
        loop();
        Thread.sleep(500); // until the JVM has settled
        long[] before = Servers.loopThread();
        Thread.sleep(get("millis"));
        long[] after = Servers.loopThread();
        figures("cpu_us", (after[0] - before[0]) / 1e3, "switches", after[1] - before[1]);
    }
}
