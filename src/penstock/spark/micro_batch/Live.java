package penstock;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What penstock asks of plans that shall run in Spark's real-time mode. */
public class Live {
  private static java.util.List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /** What of a plan does more than look at one row after the other; null when nothing does. */
  public String beyond(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2) return null;
    boolean simple = plan instanceof Project || plan instanceof Filter || plan instanceof Generate
        || plan instanceof SubqueryAlias || plan instanceof View || plan instanceof CollectMetrics;
    if (!simple) return plan.nodeName();
    for (Object one : list(plan.expressions())) {
      String found = beyond((Expression) one);
      if (found != null) return found;
    }
    for (Object child : list(plan.children())) {
      String found = beyond((LogicalPlan) child);
      if (found != null) return found;
    }
    return null;
  }

  private static String beyond(Expression expression) {
    if (expression instanceof PythonFuncExpression) return "a Python function";
    if (expression instanceof SubqueryExpression) return "a subquery";
    for (Object child : list(expression.children())) {
      String found = beyond((Expression) child);
      if (found != null) return found;
    }
    return null;
  }

  /** The same query with every partition of a topic read by one task: real-time mode does not split them. */
  public Object unsplit(final org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan) {
    LogicalPlan changed = (LogicalPlan) plan.transformUp(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof StreamingRelationV2;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!(node instanceof StreamingRelationV2)) return otherwise.apply(node);
        StreamingRelationV2 old = (StreamingRelationV2) node;
        Map options = new HashMap(old.extraOptions().asCaseSensitiveMap());
        for (Object name : old.extraOptions().asCaseSensitiveMap().keySet()) {
          if (((String) name).equalsIgnoreCase("minPartitions")) options.remove(name);
        }
        return new StreamingRelationV2(old.source(), old.sourceName(), old.table(), new CaseInsensitiveStringMap(options),
            old.output(), old.catalog(), old.identifier(), old.v1Relation());
      }
    });
    return org.apache.spark.sql.classic.Dataset.ofRows(session, changed);
  }
}
