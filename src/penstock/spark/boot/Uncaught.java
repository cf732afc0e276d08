package penstock;

import java.lang.reflect.Field;
import org.apache.spark.security.SocketAuthServer;
import scala.concurrent.Promise;

/**
 * What becomes of an error that ends a thread of the JVM while somebody waits for it.
 *
 * Spark hands on exceptions, and lets errors of the machine (OutOfMemoryError, NoClassDefFoundError, StackOverflowError) end the
 * thread. One that serves a result tells whoever joins it. One that Spark needs for its work takes the JVM with it, as on an executor:
 * jobs would wait for it for ever, and the end of a process is always heard.
 */
public class Uncaught implements Thread.UncaughtExceptionHandler {
  public static final int UNCAUGHT = 50;
  public static final int OUT_OF_MEMORY = 52;
  private static final int ATTEMPTS = 100;
  private Thread.UncaughtExceptionHandler before;
  private boolean ours;

  /** Hear of every thread from now on; a JVM that penstock did not start (`ours` is false) is never ended. */
  public void install(boolean ours) {
    this.ours = ours;
    before = Thread.getDefaultUncaughtExceptionHandler();
    if (before == null || !before.getClass().getSimpleName().equals("Uncaught")) {
      Thread.setDefaultUncaughtExceptionHandler(this);
    }
  }

  public void uncaughtException(Thread thread, Throwable thrown) {
    if (serves(thread)) {
      tell(thread, thrown);
    } else if (ours && thrown instanceof Error && !(thrown instanceof ThreadDeath) && !isAwaited(thread, thrown)) {
      end(thread, thrown);
    }
    if (before != null) before.uncaughtException(thread, thrown);
  }

  private static boolean serves(Thread thread) {
    return thread.getClass().getName().startsWith("org.apache.spark.security.SocketAuthServer$");
  }

  /** Let those who wait for the end of a serving thread have what ended it; memory may come free only in a while. */
  private static void tell(Thread thread, Throwable thrown) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      try {
        Field field = thread.getClass().getDeclaredField("$outer");
        field.setAccessible(true);
        SocketAuthServer server = (SocketAuthServer) field.get(thread);
        Promise promise = server.org$apache$spark$security$SocketAuthServer$$promise();
        promise.tryFailure(thrown);
        return;
      } catch (OutOfMemoryError full) {
        pause();
      } catch (Exception changed) {
        System.err.println("penstock: nobody hears of " + thrown + ": " + changed);
        return;
      }
    }
  }

  /** Whether the end of a thread is heard without us: a stream keeps its error, a call of Py4J closes its connection. */
  private static boolean isAwaited(Thread thread, Throwable thrown) {
    if (thread.getName().startsWith("stream execution thread")) return true;
    StackTraceElement[] trace = thrown.getStackTrace();
    for (int each = 0; each < trace.length; each++) {
      if (trace[each].getClassName().equals("py4j.ClientServerConnection")) return true;
    }
    return false;
  }

  private static void end(Thread thread, Throwable thrown) {
    try {
      System.err.println("penstock: the thread '" + thread.getName() + "' ended Spark: " + thrown);
      thrown.printStackTrace();
    } finally {
      Runtime.getRuntime().halt(thrown instanceof OutOfMemoryError ? OUT_OF_MEMORY : UNCAUGHT);
    }
  }

  private static void pause() {
    try {
      Thread.sleep(20);
    } catch (InterruptedException ended) {
      return;
    }
  }
}
