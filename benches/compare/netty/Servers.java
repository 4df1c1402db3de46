// W8, W10 and W16 on Netty: a server in this process, its clients in another one. In W16 it has two loops, else one.

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultSelectStrategyFactory;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.util.concurrent.EventExecutor;
import io.netty.util.concurrent.EventExecutorChooserFactory;
import io.netty.util.concurrent.ThreadPerTaskExecutor;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.channels.spi.SelectorProvider;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

final class Servers {
    static void echo() throws Exception {
        List<String> words = new ArrayList<>();
        for (String key : new String[] {"conns", "size", "depth", "core", "millis"}) {
            words.add(key + "=" + Compare.get(key));
        }
        report("echo", serve(), words);
    }

    static void rate() throws Exception {
        report("rate", serve(), new ArrayList<>(Arrays.asList("core=" + Compare.get("core"), "millis=" + Compare.get("millis"))));
    }

    /** The first connections are hot, and all of these are on the first of two loops. */
    static void uneven() throws Exception {
        AtomicInteger chosen = new AtomicInteger();
        int conns = Compare.get("conns");
        int hot = Compare.get("hot");
        EventExecutorChooserFactory unlucky = loops -> new EventExecutorChooserFactory.EventExecutorChooser() {
            @Override
            public EventExecutor next() {
                return loops[chosen.getAndIncrement() % conns < hot ? 0 : 1];
            }
        };
        NioEventLoopGroup group = new NioEventLoopGroup(
                2,
                new ThreadPerTaskExecutor(Executors.defaultThreadFactory()),
                unlucky,
                SelectorProvider.provider(),
                DefaultSelectStrategyFactory.INSTANCE);
        int work = Compare.get("work");
        int port = serve(group, () -> new Hashing(work));
        chosen.set(0); // one was chosen for the listener; from here on they are for connections
        List<String> words = new ArrayList<>();
        for (String key : new String[] {"conns", "hot", "work", "warm", "millis"}) {
            words.add(key + "=" + Compare.get(key));
        }
        report("uneven", port, words);
    }

    /** Twice, on one server: the first time warms the JVM up, and so takes its time at any scale. */
    private static void report(String kind, int port, List<String> words) throws Exception {
        List<String> warmUp = new ArrayList<>(words);
        warmUp.add("millis=3000"); // the last one counts
        new Load(kind, port, warmUp).run();
        new Load(kind, port, words).report();
    }

    static void idle() throws Exception {
        int port = serve();
        new Load("idle", port, Arrays.asList("conns=100")).run();
        Load load = new Load("idle", port, Arrays.asList("conns=" + Compare.get("conns")));
        load.line();
        long heap = heap();
        long resident = resident();
        load.go();
        double count = Double.parseDouble(load.line().split(" ")[1]);
        Compare.figures("heap_b", (heap() - heap) / count, "rss_b", (resident() - resident) / count);
        load.close();
    }

    /** Starts an echo server on one loop; says its port. */
    private static int serve() throws Exception {
        return serve(new NioEventLoopGroup(1), Echo::new);
    }

    private static int serve(NioEventLoopGroup group, Supplier<ChannelHandler> handlers) throws Exception {
        ChannelFuture bound = new ServerBootstrap()
                .group(group)
                .channel(NioServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 1024)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        channel.pipeline().addLast(handlers.get());
                    }
                })
                .bind("127.0.0.1", 0)
                .sync();
        return ((InetSocketAddress) bound.channel().localAddress()).getPort();
    }

    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message, context.voidPromise());
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close(); // clients may reset their connection
        }
    }

    /** Answers each request with a hash of it; what is hashed, and how, is in workloads/hashing.rs. */
    private static final class Hashing extends ChannelInboundHandlerAdapter {
        private static final int WORDS = 8;
        private final int steps;
        private final byte[] request = new byte[8 * WORDS];
        private int received;

        Hashing(int steps) {
            this.steps = steps;
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf bytes = (ByteBuf) message;
            while (bytes.isReadable()) {
                int part = Math.min(bytes.readableBytes(), request.length - received);
                bytes.readBytes(request, received, part);
                received += part;
                if (received == request.length) {
                    received = 0;
                    context.write(context.alloc().buffer(8).writeLongLE(answer()), context.voidPromise());
                }
            }
            bytes.release();
        }

        private long answer() {
            long[] words = new long[WORDS];
            for (int place = 0; place < request.length; place++) {
                words[place / 8] |= (request[place] & 0xFFL) << place % 8 * 8;
            }
            long hash = 0;
            for (int step = 0; step < steps; step++) {
                hash = (hash ^ words[step & WORDS - 1]) * 0x0000_0100_0000_01B3L;
                hash ^= hash >>> 29;
            }
            return hash;
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close(); // clients may reset their connection
        }
    }

    /** The process of the clients; the property compare.exe says which program it is. */
    private static final class Load {
        private final Process process;
        private final BufferedReader lines;

        Load(String kind, int port, List<String> words) throws IOException {
            List<String> command = new ArrayList<>();
            command.addAll(Arrays.asList(System.getProperty("compare.exe"), "load", kind, "port=" + port));
            command.addAll(words);
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            lines = new BufferedReader(new InputStreamReader(process.getInputStream()));
        }

        String line() throws IOException {
            String line = lines.readLine();
            if (line == null) {
                throw new IOException("the clients ended");
            }
            return line;
        }

        /** Lets clients go on that wait for it. */
        void go() throws IOException {
            process.getOutputStream().write('\n');
            process.getOutputStream().flush();
        }

        /** Lets it run, and looks at nothing. */
        void run() throws Exception {
            line();
            go();
            line();
            close();
        }

        /** Waits for it, so that its CPU time counts as that of this process. */
        void close() throws Exception {
            process.getOutputStream().close();
            process.waitFor();
        }

        void report() throws Exception {
            line();
            long before = cpu();
            String[] end = line().split(" ");
            long used = cpu() - before;
            double count = Double.parseDouble(end[1]);
            close();
            double perSecond = count / (Double.parseDouble(end[2]) / 1e9);
            if (end.length == 3) {
                Compare.figures("per_s", perSecond, "cpu_ns", used / count);
                return;
            }
            double p50 = Double.parseDouble(end[3]) / 1e3;
            double p99 = Double.parseDouble(end[4]) / 1e3;
            Compare.figures("per_s", perSecond, "p50_us", p50, "p99_us", p99, "cpu_ns", used / count);
        }
    }

    /** CPU time of all threads of this process, in nanoseconds. */
    static long cpu() throws IOException {
        long nanos = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Paths.get("/proc/self/task"))) {
            for (Path thread : threads) {
                try {
                    nanos += Long.parseLong(new String(Files.readAllBytes(thread.resolve("schedstat"))).split(" ")[0]);
                } catch (IOException gone) {
                    // It ended between the listing and the look at it.
                }
            }
        }
        return nanos;
    }

    /** CPU time in nanoseconds and context switches of the event loop's thread. */
    static long[] loopThread() throws IOException {
        long[] sum = new long[2];
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Paths.get("/proc/self/task"))) {
            for (Path thread : threads) {
                String name = new String(Files.readAllBytes(thread.resolve("comm")));
                if (!name.startsWith("nioEventLoop")) {
                    continue;
                }
                sum[0] += Long.parseLong(new String(Files.readAllBytes(thread.resolve("schedstat"))).split(" ")[0]);
                for (String line : Files.readAllLines(thread.resolve("status"))) {
                    if (line.contains("ctxt_switches:")) {
                        sum[1] += Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
                    }
                }
            }
        }
        return sum;
    }

    private static long heap() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static long resident() throws IOException {
        String text = new String(Files.readAllBytes(Paths.get("/proc/self/statm")));
        return Long.parseLong(text.split(" ")[1]) * 4096;
    }
}
