// Work for the end-to-end test: the virtual machine uses malloc for its compilers, threads and
// metadata, and for direct buffers, compression and class loading.
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Work {
    static String work(int seed) throws Exception {
        long state = seed;
        Map<String, List<Integer>> map = new HashMap<>();
        List<ByteBuffer> buffers = new ArrayList<>();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8000; i++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            int value = (int) (state >>> 40);
            map.computeIfAbsent(Integer.toString(value % 900, 36), k -> new ArrayList<>()).add(value);
            text.append(value % 1000).append(' ');
            if (i % 20 == 0) {
                ByteBuffer buffer = ByteBuffer.allocateDirect(1 + (value & 0x3fff));
                for (int k = 0; k < buffer.capacity(); k++) buffer.put(k, (byte) (k + i));
                buffers.add(buffer);
            }
        }
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(new TreeMap<>(map).toString().getBytes("UTF-8"));
        for (ByteBuffer buffer : buffers) digest.update(buffer.duplicate());
        Matcher matcher = Pattern.compile("(\\d)\\1").matcher(text);
        int pairs = 0;
        while (matcher.find()) pairs++;
        return seed + ":" + map.size() + ":" + pairs + ":" + packed(text.toString().getBytes("UTF-8")) + ":" + hex(digest.digest());
    }

    static int packed(byte[] data) throws Exception {
        Deflater deflater = new Deflater();
        deflater.setInput(data);
        deflater.finish();
        byte[] out = new byte[data.length + 100];
        int length = deflater.deflate(out);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(out, 0, length);
        byte[] back = new byte[data.length];
        if (inflater.inflate(back) != data.length || !java.util.Arrays.equals(back, data)) throw new AssertionError("inflate");
        inflater.end();
        return length;
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8; i++) text.append(String.format("%02x", bytes[i]));
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        for (int round = 0; round < 2; round++) {
            ExecutorService pool = Executors.newFixedThreadPool(8);
            List<Future<String>> answers = new ArrayList<>();
            for (int n = 0; n < 10; n++) {
                int seed = round * 100 + n;
                answers.add(pool.submit(() -> work(seed)));
            }
            for (Future<String> answer : answers) System.out.println(answer.get());
            pool.shutdown();
        }
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 200; n++) {
            Thread thread = new Thread(() -> new StringBuilder().append(new byte[1000]).length());
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        System.out.println(IntStream.range(0, 100000).parallel().mapToObj(Integer::toString).collect(Collectors.joining()).length());
    }
}
