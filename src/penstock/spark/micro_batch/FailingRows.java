package penstock;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.python.PythonException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionWithRandomSeed;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;

/**
 * Which rows of a batch a query without memory fails for, and why.
 *
 * The query is planned by Spark over a leaf of ours, and its last RDD travels to the tasks that have the rows. There it is computed over and over,
 * each time from the row behind the one that failed: what Spark runs is what says that a row fails, so that it is evaluated exactly as far
 * as Spark evaluates it. A plan that takes one row at a time is at the row that it has taken last when it fails. One that reads ahead, as those
 * with functions in Python do, is given ever smaller parts of the rows.
 *
 * Compiled in the driver's JVM by Janino, hence the plain dialect: no generics, no lambdas.
 */
public class FailingRows {
  /** Rows that are evaluated together at most. */
  static final int CHUNK = 4096;

  static final ThreadLocal ROWS = new ThreadLocal();

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  static scala.collection.immutable.Seq none() {
    return scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList()).toList();
  }

  /** The one partition of a leaf. */
  public static class Whole implements Partition {
    private static final long serialVersionUID = 1L;

    public int index() {
      return 0;
    }

    public int hashCode() {
      return 0;
    }

    public boolean equals(Object other) {
      return other instanceof Whole;
    }

    public boolean org$apache$spark$Partition$$super$equals(Object other) {
      return equals(other);
    }
  }

  /** The rows that the task in this thread evaluates now. */
  public static class Leaf extends RDD {
    private static final long serialVersionUID = 1L;

    public Leaf(SparkContext context) {
      super(context, none(), scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
      return ((Rows) ROWS.get()).again();
    }

    public Partition[] getPartitions() {
      return new Partition[] {new Whole()};
    }
  }

  /** Some rows, without those that have failed already, and which of them was taken last. */
  public static class Rows extends scala.collection.AbstractIterator {
    private final List rows;
    private final String[] reasons;
    private final int begin;
    private final int end;
    private int next;
    private int last = -1;

    Rows(List rows, String[] reasons, int begin, int end) {
      this.rows = rows;
      this.reasons = reasons;
      this.begin = begin;
      this.end = end;
      this.next = begin;
    }

    Rows again() {
      next = begin;
      last = -1;
      return this;
    }

    public boolean hasNext() {
      while (next < end && reasons[next] != null) next++;
      return next < end;
    }

    public Object next() {
      if (!hasNext()) throw new java.util.NoSuchElementException();
      last = next++;
      return rows.get(last);
    }

    int last() {
      return last;
    }

    int count() {
      int count = 0;
      for (int at = begin; at < end; at++) {
        if (reasons[at] == null) count++;
      }
      return count;
    }
  }

  /** What a task does with its rows, which have their number in the last column: it returns the numbers of those that fail, and the reasons. */
  public static class Find implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;
    private final RDD query;
    private final Partition[] parts;
    private final int number;
    private final boolean readsAhead;

    Find(RDD query, Partition[] parts, int number, boolean readsAhead) {
      this.query = query;
      this.parts = parts;
      this.number = number;
      this.readsAhead = readsAhead;
    }

    public Iterator call(Object all) throws Exception {
      Iterator rows = (Iterator) all;
      List failures = new ArrayList();
      List chunk = new ArrayList();
      while (rows.hasNext()) {
        chunk.add(((InternalRow) rows.next()).copy());
        if (chunk.size() == CHUNK || !rows.hasNext()) {
          find(chunk, failures);
          chunk = new ArrayList();
        }
      }
      return failures.iterator();
    }

    private void find(List chunk, List failures) throws Exception {
      String[] reasons = new String[chunk.size()];
      for (int part = 0; part < parts.length; part++) {
        if (readsAhead) {
          halve(chunk, reasons, 0, chunk.size(), parts[part]);
        } else {
          follow(chunk, reasons, parts[part]);
        }
      }
      for (int at = 0; at < reasons.length; at++) {
        if (reasons[at] == null) continue;
        Object[] failure = {Long.valueOf(((InternalRow) chunk.get(at)).getLong(number)), reasons[at]};
        failures.add(RowFactory.create(failure));
      }
    }

    private void follow(List chunk, String[] reasons, Partition part) throws Exception {
      int begin = 0;
      while (begin < chunk.size()) {
        Rows rows = new Rows(chunk, reasons, begin, chunk.size());
        Throwable error = run(rows, part);
        if (error == null) return;
        // Before it has taken a row, it is not a row that fails.
        if (rows.last() < 0) raise(error);
        reasons[rows.last()] = reason(error);
        begin = rows.last() + 1;
      }
    }

    private void halve(List chunk, String[] reasons, int begin, int end, Partition part) throws Exception {
      Rows rows = new Rows(chunk, reasons, begin, end);
      int count = rows.count();
      if (count == 0) return;
      Throwable error = run(rows, part);
      if (error == null) return;
      if (count == 1) {
        for (int at = begin; at < end; at++) {
          if (reasons[at] == null) reasons[at] = reason(error);
        }
        return;
      }
      int middle = begin + (end - begin) / 2;
      halve(chunk, reasons, begin, middle, part);
      halve(chunk, reasons, middle, end, part);
    }

    /** Compute one part of the query, such as a side of a union, over rows; return what a row of them has raised. */
    private Throwable run(Rows rows, Partition part) throws Exception {
      TaskContext context = TaskContext.get();
      ROWS.set(rows);
      try {
        scala.collection.Iterator out = query.iterator(part, context);
        while (out.hasNext()) out.next();
        return null;
      } catch (Throwable error) {
        if (context.isInterrupted() || !isOfRow(error)) raise(error);
        return error;
      } finally {
        ROWS.remove();
      }
    }

    private static void raise(Throwable error) throws Exception {
      if (error instanceof Error) throw (Error) error;
      throw (Exception) error;
    }
  }

  /** Whether an error is about the values of a row: not one of the machine, of a task that is to end, or of a process that has gone. */
  static boolean isOfRow(Throwable error) {
    if (error instanceof PythonException) return true;
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof Error || cause instanceof IOException || cause instanceof InterruptedException
          || cause instanceof TaskKilledException || cause instanceof PythonException) {
        return cause instanceof PythonException;
      }
    }
    return true;
  }

  /** Spark's condition and message, without the piece of the query in which it is. */
  static String reason(Throwable error) {
    Throwable named = error;
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof PythonException) return ofPython(String.valueOf(cause.getMessage()));
      if (cause instanceof SparkThrowable && ((SparkThrowable) cause).getCondition() != null) {
        named = cause;
        break;
      }
    }
    String text = named.getMessage();
    if (text == null || !(named instanceof SparkThrowable)) text = named.toString();
    int context = text.indexOf("\n== ");
    return (context < 0 ? text : text.substring(0, context)).trim();
  }

  /** What a function has raised, without where: the text behind the last line of a traceback. */
  private static String ofPython(String text) {
    int mark = text.indexOf("\npenstock-error:");
    String[] lines = (mark < 0 ? text : text.substring(0, mark)).trim().split("\n");
    int first = 0;
    for (int at = 0; at < lines.length; at++) {
      if (lines[at].startsWith("  ") || lines[at].startsWith("Traceback")) first = at + 1;
    }
    StringBuilder said = new StringBuilder();
    for (int at = Math.min(first, lines.length - 1); at < lines.length; at++) said.append(lines[at]).append('\n');
    return said.toString().trim();
  }

  /** Rows with these columns, over which a query can be planned whose failing rows are looked for. */
  public Object leaf(
      org.apache.spark.sql.classic.SparkSession session, org.apache.spark.sql.types.StructType columns) {
    return session.internalCreateDataFrame(new Leaf(session.sparkContext()), columns, false);
  }

  /** Why the rows for which a query over a leaf fails cannot be told apart, in words; null when they can. */
  public String obstacle(org.apache.spark.sql.classic.Dataset query) {
    String random = random(query.queryExecution().analyzed());
    return random != null ? random : obstacle(query.queryExecution().executedPlan());
  }

  private static String random(LogicalPlan plan) {
    if (plan instanceof Sample) return "TABLESAMPLE";
    for (Object one : list(plan.expressions())) {
      if (isRandom((Expression) one)) return "random values";
    }
    for (Object one : list(plan.subqueries())) {
      String inner = random((LogicalPlan) one);
      if (inner != null) return inner;
    }
    for (Object child : list(plan.children())) {
      String inner = random((LogicalPlan) child);
      if (inner != null) return inner;
    }
    return null;
  }

  private static boolean isRandom(Expression expression) {
    if (expression instanceof ExpressionWithRandomSeed) return true;
    for (Object child : list(expression.children())) {
      if (isRandom((Expression) child)) return true;
    }
    return false;
  }

  private static String obstacle(SparkPlan plan) {
    if (plan instanceof AdaptiveSparkPlanExec) return obstacle(((AdaptiveSparkPlanExec) plan).initialPlan());
    if (plan instanceof BroadcastExchangeLike) return null;
    if (plan instanceof ReusedExchangeExec) return obstacle((SparkPlan) ((ReusedExchangeExec) plan).child());
    if (plan instanceof Exchange) return "a join with a table that is too large for every task to have it, or another exchange of rows";
    for (Object child : list(plan.children())) {
      String inner = obstacle((SparkPlan) child);
      if (inner != null) return inner;
    }
    return null;
  }

  static boolean readsAhead(SparkPlan plan) {
    if (plan instanceof AdaptiveSparkPlanExec) return readsAhead(((AdaptiveSparkPlanExec) plan).initialPlan());
    if (plan instanceof Exchange) return false;
    if (plan.getClass().getName().contains("Python")) return true;
    for (Object child : list(plan.children())) {
      if (readsAhead((SparkPlan) child)) return true;
    }
    return false;
  }

  /**
   * The rows for which a query over a leaf fails, as their numbers and the reasons; null when it fails for none. `numbered` are all rows, in
   * the columns of the leaf, with their numbers in one more.
   */
  public Object failing(
      final org.apache.spark.sql.classic.SparkSession session,
      final org.apache.spark.sql.classic.Dataset numbered,
      final org.apache.spark.sql.classic.Dataset query,
      final org.apache.spark.sql.types.StructType columns) {
    Object failures = org.apache.spark.sql.execution.SQLExecution$.MODULE$.withSQLConfPropagated(
        session, new scala.runtime.AbstractFunction0() {
          public Object apply() {
            RDD computed = query.queryExecution().toRdd();
            int number = numbered.schema().size() - 1;
            boolean ahead = readsAhead(query.queryExecution().executedPlan());
            Find find = new Find(computed, computed.partitions(), number, ahead);
            return numbered.queryExecution().toRdd().toJavaRDD().mapPartitions(find).collect();
          }
        });
    List found = (List) failures;
    return found.isEmpty() ? null : session.createDataFrame(found, columns);
  }
}
