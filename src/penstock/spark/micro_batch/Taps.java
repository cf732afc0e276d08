package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.*;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.execution.python.EvalPythonExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator;
import org.apache.spark.sql.execution.streaming.operators.stateful.WatermarkSupport;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.util.AccumulatorV2;

/** Points of a plan that have a name, and the rows that pass them in one epoch. */
public class Taps {
  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /** The names of all taps of a plan, in its order: of observations, and of literals in filters. */
  public List names(LogicalPlan plan, String prefix) {
    List found = new ArrayList();
    names(plan, prefix, found);
    return found;
  }

  private static void names(LogicalPlan plan, String prefix, List found) {
    for (Object child : list(plan.children())) names((LogicalPlan) child, prefix, found);
    if (plan instanceof CollectMetrics) add(((CollectMetrics) plan).name(), prefix, found);
    if (plan instanceof Filter) literals(((Filter) plan).condition(), prefix, found);
  }

  private static void literals(Expression expression, String prefix, List found) {
    if (expression instanceof Literal) add(String.valueOf(((Literal) expression).value()), prefix, found);
    for (Object child : list(expression.children())) literals((Expression) child, prefix, found);
  }

  private static void add(String name, String prefix, List found) {
    if (name.startsWith(prefix) && !found.contains(name)) found.add(name);
  }

  /** Whether a plan may leave rows of its sources unread. */
  public boolean limits(LogicalPlan plan) {
    if (plan instanceof GlobalLimit || plan instanceof LocalLimit) return true;
    for (Object child : list(plan.children())) {
      if (limits((LogicalPlan) child)) return true;
    }
    return false;
  }

  /** What was counted at a tap while a plan ran; null when it did not run. */
  public Row counted(QueryExecution execution, String name) {
    scala.Option found = execution.observedMetrics().get(name);
    return found.isDefined() ? (Row) found.get() : null;
  }

  /** The rows that come to a tap, as a batch of their own; null when the plan does not have it. */
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

  /**
   * What became of rows that came to a tap too late, after an epoch ran: {the watermark that decides in this epoch, in ms; how
   * many rows the operator behind the tap has dropped; its number; how many of its inputs can have late rows}. Null when no
   * operator drops any of them.
   */
  public long[] late(QueryExecution execution, String name) {
    List path = new ArrayList();
    if (!path(execution.executedPlan(), name, path)) return null;
    int place = operator(path);
    if (place < 0) return null;
    SparkPlan first = (SparkPlan) path.get(place);
    long number = number(first);
    long dropped = 0;
    for (int each = place; each < path.size(); each++) {
      if (path.get(each) instanceof StatefulOperator && number((SparkPlan) path.get(each)) == number) {
        scala.Option counted = ((SparkPlan) path.get(each)).metrics().get("numRowsDroppedByWatermark");
        if (counted.isDefined()) dropped += ((Number) ((AccumulatorV2) counted.get()).value()).longValue();
      }
    }
    long inputs = 1;
    if (first instanceof StreamingSymmetricHashJoinExec) {
      inputs = 0;
      for (Object child : list(first.children())) inputs += timed((SparkPlan) child) ? 1 : 0;
    }
    return new long[] {watermark(first).longValue(), dropped, number, inputs};
  }

  /** Whether a plan keeps something between epochs. */
  public boolean keeps(LogicalPlan plan) {
    if (!plan.isStreaming()) return false;
    if (plan instanceof Aggregate || plan instanceof Deduplicate || plan instanceof DeduplicateWithinWatermark
        || plan.nodeName().contains("State")
        || plan instanceof Join && ((Join) plan).left().isStreaming() && ((Join) plan).right().isStreaming()) return true;
    for (Object child : list(plan.children())) {
      if (keeps((LogicalPlan) child)) return true;
    }
    return false;
  }

  /** The rows of an epoch that come from a tap to the operator behind it: without those that are filtered out in between. */
  public Object arriving(org.apache.spark.sql.classic.SparkSession session, QueryExecution execution, String name) {
    List path = new ArrayList();
    if (!path(execution.executedPlan(), name, path)) return null;
    LogicalPlan made = find(execution.analyzed(), name);
    SparkPlan read = ((CollectMetricsExec) path.get(0)).child();
    Map known = new HashMap();
    if (keeps(made)) {
      // A copy counts for itself, and leaves the numbers of the query's own operators alone.
      SparkPlan copy = (SparkPlan) read.clone();
      made = session.internalCreateDataFrame(copy.execute(), copy.schema(), false).queryExecution().analyzed();
      for (int each = 0; each < read.output().size(); each++) {
        known.put(((NamedExpression) read.output().apply(each)).exprId(), made.output().apply(each));
      }
    } else {
      for (Object column : list(made.output())) known.put(((NamedExpression) column).exprId(), column);
    }
    for (Object condition : conditions(path, known)) made = new Filter((Expression) condition, made);
    return org.apache.spark.sql.classic.Dataset.ofRows(session, made);
  }

  /** What is asked of rows on the way from a tap to the operator behind it; `known` are columns there, by their numbers. */
  private static List conditions(List path, Map known) {
    List found = new ArrayList();
    for (int each = 1; each < path.size(); each++) {
      Object node = path.get(each);
      if (node instanceof ProjectExec) {
        for (Object column : list(((ProjectExec) node).projectList())) {
          if (column instanceof Alias) learn(known, (Alias) column, ((Alias) column).child());
        }
      } else if (node instanceof EvalPythonExec) {
        List functions = list(((EvalPythonExec) node).udfs());
        List results = list(((EvalPythonExec) node).resultAttrs());
        for (int one = 0; one < functions.size(); one++) {
          learn(known, (NamedExpression) results.get(one), (Expression) functions.get(one));
        }
      } else if (node instanceof FilterExec) {
        Expression condition = known(known, ((FilterExec) node).condition());
        if (condition != null) found.add(condition);
      } else if (!(node instanceof InputAdapter || node instanceof WholeStageCodegenExec
          || node instanceof EventTimeWatermarkExec || node instanceof ShuffleExchangeLike)) {
        break;
      }
    }
    return found;
  }

  private static void learn(Map known, NamedExpression name, Expression value) {
    Expression found = known(known, value);
    if (found != null) known.put(name.exprId(), found);
  }

  /** An expression in terms of the columns that are known; null when it has others. */
  private static Expression known(Map known, Expression expression) {
    if (expression instanceof AttributeReference) {
      return (Expression) known.get(((AttributeReference) expression).exprId());
    }
    List children = new ArrayList();
    for (Object child : list(expression.children())) {
      Expression found = known(known, (Expression) child);
      if (found == null) return null;
      children.add(found);
    }
    return (Expression) expression.withNewChildren(scala.jdk.javaapi.CollectionConverters.asScala(children).toSeq());
  }

  /** The way from a tap up to the root. */
  private static boolean path(SparkPlan plan, String name, List found) {
    boolean here = plan instanceof CollectMetricsExec && ((CollectMetricsExec) plan).name().equals(name);
    if (!here) {
      for (Object child : list(plan.children())) {
        if (path((SparkPlan) child, name, found)) {
          here = true;
          break;
        }
      }
    }
    if (here) found.add(plan);
    return here;
  }

  /** Where on the way the first operator is that drops rows which are too late; -1 without one. */
  private static int operator(List path) {
    for (int each = 1; each < path.size(); each++) {
      Object node = path.get(each);
      if (watermark(node) != null) {
        // A join whose result does not need the time does not get it, and drops nothing.
        boolean drops = !(node instanceof StreamingSymmetricHashJoinExec) || timed((SparkPlan) path.get(each - 1));
        return drops ? each : -1;
      }
    }
    return -1;
  }

  private static Long watermark(Object node) {
    scala.Option found = null;
    if (node instanceof WatermarkSupport) found = ((WatermarkSupport) node).eventTimeWatermarkForLateEvents();
    if (node instanceof StreamingSymmetricHashJoinExec) {
      found = ((StreamingSymmetricHashJoinExec) node).eventTimeWatermarkForLateEvents();
    }
    return found != null && found.isDefined() ? (Long) found.get() : null;
  }

  private static boolean timed(SparkPlan plan) {
    for (Object column : list(plan.output())) {
      if (((NamedExpression) column).metadata().contains(EventTimeWatermark.delayKey())) return true;
    }
    return false;
  }

  private static long number(SparkPlan operator) {
    return ((StatefulOperator) operator).getStateInfo().operatorId();
  }
}
