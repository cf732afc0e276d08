package penstock;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.nio.channels.ClosedChannelException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SimpleFutureAction;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonRDD$;
import org.apache.spark.internal.config.package$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * Results on their way to Python: Arrow batches bounded by rows and bytes, sent while the tasks make them.
 *
 * A frame is {kind, partition, attempt of the task, length, bytes}. Tasks of a local Spark write their batches to the socket
 * themselves, so that neither a task nor the driver ever holds a partition; those of a cluster return them, partition by
 * partition. Batches count when their attempt does (COMMIT), and a result is whole when END has come.
 */
public class ArrowStream {
  public static final int SCHEMA = 1;
  public static final int BATCH = 2;
  public static final int COMMIT = 3;
  public static final int END = 4;
  static final int CHUNK = 1 << 18;
  static final String ACTION = "collectAsArrowToPython";
  static final Map OPEN = new ConcurrentHashMap();
  static final AtomicLong NUMBERS = new AtomicLong();

  /** The rows of a query as batches, not yet computed. */
  public RDD batches(Dataset frame) {
    return batches(frame, frame.queryExecution().executedPlan());
  }

  static RDD batches(Dataset frame, SparkPlan plan) {
    return plan.execute().mapPartitions(new ToBatches(frame), false, tag());
  }

  static scala.reflect.ClassTag tag() {
    return scala.reflect.ClassTag$.MODULE$.apply(byte[].class);
  }

  /**
   * Run a query and serve its rows; returns what PySpark's own servers return: {address, secret, server}. With `limited`, the
   * result may be as large as Spark's setting allows.
   */
  public Object[] serveQuery(final Dataset frame, final boolean limited) {
    return PythonRDD$.MODULE$.serveToStream("serve-Arrow", new AbstractFunction1() {
      public Object apply(final Object out) {
        final QueryExecution execution = frame.queryExecution();
        return SQLExecution.withNewExecutionId(execution, scala.Option.apply(ACTION), new AbstractFunction0() {
          public Object apply() {
            return QueryExecution$.MODULE$.withInternalError("The \"" + ACTION + "\" action failed.", new AbstractFunction0() {
              public Object apply() {
                SparkPlan plan = execution.executedPlan();
                plan.resetMetrics();
                RDD rdd = batches(frame, plan);
                return new Sending(rdd.sparkContext(), (OutputStream) out, limited).run(rdd, null, schema(frame));
              }
            });
          }
        });
      }
    });
  }

  /** Serve some partitions of batches that `batches` made. */
  public Object[] servePartitions(final RDD rdd, final List partitions) {
    return PythonRDD$.MODULE$.serveToStream("serve RDD " + rdd.id(), new AbstractFunction1() {
      public Object apply(Object out) {
        return new Sending(rdd.sparkContext(), (OutputStream) out, false).run(rdd, partitions, null);
      }
    });
  }

  static byte[] schema(Dataset frame) {
    SQLConf conf = frame.sparkSession().sessionState().conf();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    new ArrowBatchStreamWriter(frame.schema(), bytes, conf.sessionLocalTimeZone(), legacy(conf), conf.arrowUseLargeVarTypes());
    return bytes.toByteArray();
  }

  static boolean legacy(SQLConf conf) {
    return "legacy".equals(conf.pandasStructHandlingMode());
  }

  /** Raise anything, whatever a signature says. */
  static void raise(Throwable thrown) {
    new scala.util.Failure(thrown).get();
  }

  /** Turns the rows of a partition into batches; goes to the tasks. */
  public static class ToBatches extends AbstractFunction1 implements Serializable {
    final StructType schema;
    final long rows;
    final long bytes;
    final String zone;
    final boolean legacy;
    final boolean large;

    ToBatches(Dataset frame) {
      SQLConf conf = frame.sparkSession().sessionState().conf();
      schema = frame.schema();
      rows = conf.arrowMaxRecordsPerBatch();
      bytes = conf.arrowMaxBytesPerBatch();
      zone = conf.sessionLocalTimeZone();
      legacy = legacy(conf);
      large = conf.arrowUseLargeVarTypes();
    }

    public Object apply(Object partition) {
      return new Batches(new Portion((Iterator) partition, schema, bytes), this);
    }
  }

  /** Spark's own batches, each of one portion of the rows. */
  public static class Batches extends AbstractIterator {
    private final Portion rows;
    private final Iterator batches;

    Batches(Portion rows, ToBatches how) {
      this.rows = rows;
      batches = ArrowConverters$.MODULE$.toBatchIterator(
          rows, how.schema, how.rows, how.zone, how.legacy, how.large, TaskContext.get());
    }

    public boolean hasNext() {
      rows.used = 0;
      return batches.hasNext();
    }

    public Object next() {
      rows.used = 0;
      return batches.next();
    }
  }

  /** Rows that seem to end when enough bytes were taken, until `used` is set back. */
  public static class Portion extends AbstractIterator {
    long used;
    private final Iterator rows;
    private final StructType schema;
    private final long bytes;
    private UnsafeProjection projection;

    Portion(Iterator rows, StructType schema, long bytes) {
      this.rows = rows;
      this.schema = schema;
      this.bytes = bytes;
    }

    public boolean hasNext() {
      return used < bytes && rows.hasNext();
    }

    public Object next() {
      InternalRow row = (InternalRow) rows.next();
      if (!(row instanceof UnsafeRow)) {
        if (projection == null) projection = UnsafeProjection.create(schema);
        row = projection.apply(row);
      }
      used += ((UnsafeRow) row).getSizeInBytes();
      return row;
    }
  }

  /** The work of a task: it sends its batches, or returns them when the socket is not in its process. */
  public static class Task extends AbstractFunction1 implements Serializable {
    private final long sending;
    private final boolean local;

    Task(long sending, boolean local) {
      this.sending = sending;
      this.local = local;
    }

    public Object apply(Object partition) {
      Iterator batches = (Iterator) partition;
      TaskContext task = TaskContext.get();
      if (!local) return done(task, batches.toArray(tag()));
      Sending to = (Sending) OPEN.get(Long.valueOf(sending));
      if (to == null) throw new IllegalStateException("nobody waits for this result any more");
      to.send(batches, task.partitionId(), task.taskAttemptId());
      return done(task, null);
    }
  }

  static Object[] done(TaskContext task, Object batches) {
    return new Object[] {Integer.valueOf(task.partitionId()), Long.valueOf(task.taskAttemptId()), batches};
  }

  /** One result and the socket that it goes to. */
  public static class Sending {
    private final SparkContext context;
    private final DataOutputStream out;
    private final long number = NUMBERS.incrementAndGet();
    private final long most;
    private long sent;
    final LinkedBlockingQueue news = new LinkedBlockingQueue();

    Sending(SparkContext context, OutputStream out, boolean limited) {
      this.context = context;
      this.out = new DataOutputStream(out);
      most = limited ? ((Long) context.conf().get(package$.MODULE$.MAX_RESULT_SIZE())).longValue() : 0;
    }

    Object run(RDD rdd, List partitions, byte[] schema) {
      OPEN.put(Long.valueOf(number), this);
      SimpleFutureAction job = null;
      try {
        if (schema != null) frame(SCHEMA, 0, 0, schema);
        job = start(rdd, partitions);
        boolean ended = false;
        while (!ended) {
          Object piece = news.take();
          try {
            ended = handle(piece);
          } catch (ClosedChannelException closed) {
            raiseOutcome(closed);
          }
        }
        frame(END, 0, 0, new byte[0]);
        return BoxedUnit.UNIT;
      } catch (Throwable thrown) {
        if (job != null && !job.isCompleted()) job.cancel();
        raise(thrown);
        return null;
      } finally {
        OPEN.remove(Long.valueOf(number));
      }
    }

    private SimpleFutureAction start(RDD rdd, List partitions) {
      int[] which = new int[partitions == null ? rdd.getNumPartitions() : partitions.size()];
      for (int each = 0; each < which.length; each++) {
        which[each] = partitions == null ? each : ((Number) partitions.get(each)).intValue();
      }
      SimpleFutureAction job = context.submitJob(rdd, new Task(number, context.isLocal()),
          scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(which),
          new AbstractFunction2() {
            public Object apply(Object index, Object done) {
              news.add(done);
              return BoxedUnit.UNIT;
            }
          },
          new AbstractFunction0() {
            public Object apply() {
              return BoxedUnit.UNIT;
            }
          });
      job.onComplete(new AbstractFunction1() {
        public Object apply(Object result) {
          news.add(result);
          return BoxedUnit.UNIT;
        }
      }, scala.concurrent.ExecutionContext$parasitic$.MODULE$);
      return job;
    }

    /** Take in one piece of news: a partition is done, the job has ended, or a task met something that no other one will mend. */
    private boolean handle(Object piece) throws IOException {
      if (piece instanceof Throwable) raise((Throwable) piece);
      if (piece instanceof scala.util.Try) {
        ((scala.util.Try) piece).get();
        return true;
      }
      Object[] done = (Object[]) piece;
      int partition = ((Integer) done[0]).intValue();
      long attempt = ((Long) done[1]).longValue();
      byte[][] batches = (byte[][]) done[2];
      for (int each = 0; batches != null && each < batches.length; each++) frame(BATCH, partition, attempt, batches[each]);
      frame(COMMIT, partition, attempt, new byte[0]);
      return false;
    }

    /**
     * A task that was interrupted while it sent has closed the channel: its job is being cancelled, and the error that cancels it comes.
     */
    private void raiseOutcome(ClosedChannelException closed) throws InterruptedException {
      while (true) {
        Object piece = news.take();
        if (piece instanceof Throwable) raise((Throwable) piece);
        if (piece instanceof scala.util.Try) {
          ((scala.util.Try) piece).get();
          raise(closed);
        }
      }
    }

    void send(Iterator batches, int partition, long attempt) {
      try {
        while (batches.hasNext()) {
          byte[] batch = (byte[]) batches.next();
          try {
            count(batch.length);
            frame(BATCH, partition, attempt, batch);
          } catch (IOException gone) {
            // A channel that was closed on this side is that of a job which is being cancelled: its own error comes.
            if (!(gone instanceof ClosedChannelException)) news.add(gone);
            raise(gone);
          }
        }
      } catch (Error thrown) {
        news.add(thrown);
        throw thrown;
      }
    }

    private synchronized void count(int bytes) {
      sent += bytes;
      if (most <= 0 || sent <= most) return;
      SparkException large = new SparkException("The result is bigger than spark.driver.maxResultSize (" + most + " bytes)");
      news.add(large);
      raise(large);
    }

    private synchronized void frame(int kind, int partition, long attempt, byte[] bytes) throws IOException {
      out.writeInt(kind);
      out.writeInt(partition);
      out.writeLong(attempt);
      out.writeInt(bytes.length);
      for (int from = 0; from < bytes.length; from += CHUNK) out.write(bytes, from, Math.min(CHUNK, bytes.length - from));
      out.flush();
    }
  }
}
