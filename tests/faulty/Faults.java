package penstock;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/** Ways for a thread of the JVM to die. */
public class Faults {
  public static class Broken {
    static final int NUMBER = number();

    static int number() {
      throw new IllegalStateException("this class does not initialise");
    }
  }

  static void die(String how) {
    if (how.equals("class")) System.out.println(Broken.NUMBER);
    if (how.equals("memory")) throw new OutOfMemoryError("Java heap space");
    if (how.equals("heap")) fill();
    if (how.equals("stack")) die(how);
  }

  /** An OutOfMemoryError of the machine itself. */
  static void fill() {
    java.util.List all = new java.util.ArrayList();
    while (true) all.add(new long[1 << 20]);
  }

  /** Queries of a session whose optimizer dies; it runs in the thread that serves the result. */
  public void optimize(org.apache.spark.sql.classic.SparkSession session, final String how) {
    Rule rule = new Rule() {
      public TreeNode apply(TreeNode plan) {
        die(how);
        return plan;
      }
    };
    java.util.List rules = new java.util.ArrayList();
    if (!how.isEmpty()) rules.add(rule);
    session.experimental().extraOptimizations_$eq(scala.jdk.javaapi.CollectionConverters.asScala(rules).toSeq());
  }

  /** So many elements, and then the thread that asks for the next one dies, or waits for ever. */
  public scala.collection.Iterator elements(final int count, final String how) {
    return new scala.collection.AbstractIterator() {
      int given = 0;

      public boolean hasNext() {
        return true;
      }

      public Object next() {
        if (given++ < count) return new byte[100000];
        die(how);
        try {
          Thread.sleep(1000000);
        } catch (InterruptedException ended) {
          throw new RuntimeException(ended);
        }
        return null;
      }
    };
  }

  /** A thread that Spark could need, and that dies. */
  public void thread(final String how) {
    new Thread("task-result-getter-7") {
      public void run() {
        die(how);
      }
    }.start();
  }
}
