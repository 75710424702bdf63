// Reads memory of Unsafe after its free until such a block was guarded.
import java.lang.reflect.Field;
import sun.misc.Unsafe;

public class Guards {
    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        int sum = 0;
        for (int i = 0; i < 3_000_000; i++) {
            long block = unsafe.allocateMemory(1000);
            unsafe.freeMemory(block);
            sum += unsafe.getByte(block + 8);
        }
        System.out.println("went on " + sum);
    }
}
