package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.types.StructType;

/** Queries over rows that come in batches: relations that stand for such rows, and what of a query needs more than one batch. */
public class Stateless {
  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /** A streaming relation with columns and without rows; it is planned and never run. */
  public Object relation(org.apache.spark.sql.classic.SparkSession session, LogicalPlan empty) {
    scala.collection.immutable.Seq none =
        scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList()).toList();
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, new LocalRelation(empty.output(), none, true, scala.Option.empty()));
  }

  /** What of an analyzed plan depends on rows of earlier or later batches, in words; null when nothing does. */
  public String memory(LogicalPlan plan) {
    for (Object one : list(plan.subqueries())) {
      String inner = memory((LogicalPlan) one);
      if (inner != null) return inner;
    }
    for (Object child : list(plan.children())) {
      String inner = memory((LogicalPlan) child);
      if (inner != null) return inner;
    }
    if (!plan.isStreaming()) return null;
    if (plan instanceof Aggregate) {
      return ((Aggregate) plan).groupingExpressions().isEmpty() ? "an aggregate" : "GROUP BY";
    }
    if (plan instanceof Distinct || plan instanceof Deduplicate) return "DISTINCT";
    if (plan instanceof Window) return "a window function";
    if (plan instanceof Sort) return "ORDER BY";
    if (plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset || plan instanceof Tail) {
      return "LIMIT";
    }
    if (plan instanceof Intersect) return "INTERSECT";
    if (plan instanceof Except) return "EXCEPT";
    if (plan instanceof Pivot) return "PIVOT";
    if (plan instanceof Union) {
      for (Object side : list(plan.children())) {
        if (!((LogicalPlan) side).isStreaming()) return "a union with rows that would come with every batch";
      }
      return null;
    }
    if (plan instanceof Join || plan instanceof AsOfJoin) {
      List sides = list(plan.children());
      boolean left = ((LogicalPlan) sides.get(0)).isStreaming();
      boolean right = ((LogicalPlan) sides.get(1)).isStreaming();
      if (left && right) return "a join of rows that come in batches";
      if (!(plan instanceof Join)) return null;
      String kind = ((Join) plan).joinType().sql();
      if (kind.startsWith("FULL") || (kind.startsWith("LEFT") && !left) || (kind.startsWith("RIGHT") && !right)) {
        return "an outer join that gives rows of a table without a match";
      }
    }
    return null;
  }
}
