package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.WatermarkSupport;
import org.apache.spark.util.AccumulatorV2;

/** Points of a plan that have a name, and the rows that pass them in one epoch. */
public class Sides {
  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /** The names of all named points of a plan, in its order. */
  public List names(LogicalPlan plan) {
    List found = new ArrayList();
    names(plan, found);
    return found;
  }

  private static void names(LogicalPlan plan, List found) {
    for (Object child : list(plan.children())) names((LogicalPlan) child, found);
    if (plan instanceof CollectMetrics && !found.contains(((CollectMetrics) plan).name())) {
      found.add(((CollectMetrics) plan).name());
    }
  }

  /** Whether a plan may leave rows of its sources unread. */
  public boolean limits(LogicalPlan plan) {
    if (plan instanceof GlobalLimit || plan instanceof LocalLimit) return true;
    for (Object child : list(plan.children())) {
      if (limits((LogicalPlan) child)) return true;
    }
    return false;
  }

  /** What was counted at a point while a plan ran; null when it did not run. */
  public Row counted(QueryExecution execution, String name) {
    scala.Option found = execution.observedMetrics().get(name);
    return found.isDefined() ? (Row) found.get() : null;
  }

  /** The rows that come to a point, as a batch of their own; null when the plan does not have it. */
  public Object rows(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, String name) {
    LogicalPlan found = find(plan, name);
    return found == null ? null : org.apache.spark.sql.classic.Dataset.ofRows(session, found);
  }

  private static LogicalPlan find(LogicalPlan plan, String name) {
    if (plan instanceof CollectMetrics && ((CollectMetrics) plan).name().equals(name)) return ((CollectMetrics) plan).child();
    for (Object child : list(plan.children())) {
      LogicalPlan found = find((LogicalPlan) child, name);
      if (found != null) return found;
    }
    return null;
  }

  /** The rows of a stream's epoch as those of an ordinary batch. */
  public Object detached(org.apache.spark.sql.classic.Dataset rows) {
    return rows.sparkSession().internalCreateDataFrame(rows.queryExecution().toRdd(), rows.schema(), false);
  }

  /** Whether something is kept between epochs below a point. */
  public boolean keeps(LogicalPlan plan, String name) {
    LogicalPlan found = find(plan, name);
    return found != null && keeps(found);
  }

  private static boolean keeps(LogicalPlan plan) {
    if (!plan.isStreaming()) return false;
    if (plan instanceof Aggregate || plan instanceof Deduplicate || plan instanceof DeduplicateWithinWatermark
        || plan.nodeName().contains("State")
        || plan instanceof Join && ((Join) plan).left().isStreaming() && ((Join) plan).right().isStreaming()) return true;
    for (Object child : list(plan.children())) {
      if (keeps((LogicalPlan) child)) return true;
    }
    return false;
  }

  /** {the watermark that decides in this epoch what is late, in ms; how many rows operators have dropped}; null without one. */
  public long[] late(QueryExecution execution) {
    long[] found = new long[] {Long.MAX_VALUE, 0};
    late(execution.executedPlan(), found);
    return found[0] == Long.MAX_VALUE ? null : found;
  }

  private static void late(SparkPlan plan, long[] found) {
    for (Object child : list(plan.children())) late((SparkPlan) child, found);
    if (!(plan instanceof WatermarkSupport)) return;
    scala.Option watermark = ((WatermarkSupport) plan).eventTimeWatermarkForLateEvents();
    if (watermark.isDefined()) found[0] = Math.min(found[0], ((Long) watermark.get()).longValue());
    scala.Option dropped = plan.metrics().get("numRowsDroppedByWatermark");
    if (dropped.isDefined()) found[1] += ((Number) ((AccumulatorV2) dropped.get()).value()).longValue();
  }
}
