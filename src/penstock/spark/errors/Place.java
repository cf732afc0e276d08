package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.logical.*;

/**
 * Finds the expression over constants that raises an exception: Spark's optimizer folds constants and does not say which of them failed.
 *
 * Compiled in the driver's JVM by Janino, hence the plain dialect: no generics, no lambdas.
 */
public class Place {
  private static final int MOST_ROWS = 10000;

  private Throwable cause;
  private QueryContext place;

  /** The place of the smallest expression of a plan that raises the exception; null when none does. */
  public QueryContext of(org.apache.spark.sql.classic.SparkSession session, final LogicalPlan plan, Throwable failure) {
    cause = failure;
    while (cause.getCause() != null) cause = cause.getCause();
    session.withActive(new scala.runtime.AbstractFunction0() {
      public Object apply() {
        return rows(plan);
      }
    });
    return place;
  }

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /** The rows of a plan over constants, null when they are not known; on the way the first expression that fails is found. */
  private List rows(LogicalPlan plan) {
    List input = null;
    for (Object child : list(plan.children())) {
      input = rows((LogicalPlan) child);
      if (place != null) return null;
    }
    for (Object subquery : list(plan.subqueries())) {
      rows((LogicalPlan) subquery);
      if (place != null) return null;
    }
    if (plan instanceof LocalRelation) return list(((LocalRelation) plan).data());
    List constant = new ArrayList();
    constant.add(new GenericInternalRow(new Object[0]));
    if (plan instanceof OneRowRelation) return constant;
    List output = new ArrayList();
    if (plan.children().size() == 1 && input != null && input.size() <= MOST_ROWS) {
      output = list(((LogicalPlan) plan.children().apply(0)).output());
    } else {
      input = constant;
    }
    for (Object expression : list(plan.expressions())) {
      search((Expression) expression, null, input, output);
      if (place != null) return null;
    }
    return input == constant ? null : passed(plan, input, output);
  }

  /** What a Project or Filter makes of rows, null for other operators. */
  private List passed(LogicalPlan plan, List input, List output) {
    if (plan instanceof SubqueryAlias) return input;
    if (!(plan instanceof Project || plan instanceof Filter)) return null;
    List columns = list(plan.expressions());
    List results = new ArrayList();
    try {
      for (Object row : input) {
        Object[] values = new Object[columns.size()];
        for (int i = 0; i < values.length; i++) {
          Expression ready = bound((Expression) columns.get(i), output);
          if (!evaluable(ready)) return null;
          values[i] = ready.eval((InternalRow) row);
        }
        if (plan instanceof Project) results.add(new GenericInternalRow(values));
        else if (Boolean.TRUE.equals(values[0])) results.add(row);
      }
    } catch (Throwable failure) {
      return null;
    }
    return results;
  }

  /** Find the smallest failing part of an expression; the place of one without is that of what is around it. */
  private void search(Expression node, QueryContext around, List input, List output) {
    QueryContext[] contexts = node.origin().getQueryContext();
    QueryContext own = contexts.length > 0 ? contexts[0] : around;
    boolean failed = fails(node, input, output);
    List parts = new ArrayList(list(node.children()));
    if (node instanceof RuntimeReplaceable) {
      parts = new ArrayList();
      parts.add(((RuntimeReplaceable) node).replacement());
    }
    for (Object part : parts) {
      search((Expression) part, own, input, output);
      if (place != null) return;
    }
    if (failed) place = own;
  }

  private boolean fails(Expression node, List input, List output) {
    Expression ready;
    try {
      ready = bound(node, output);
      if (!evaluable(ready)) return false;
    } catch (Throwable unresolved) {
      return false;
    }
    for (Object row : input) {
      try {
        ready.eval((InternalRow) row);
      } catch (Throwable failure) {
        Throwable inner = failure;
        while (inner.getCause() != null) inner = inner.getCause();
        return inner.getClass() == cause.getClass() && sentence(inner).equals(sentence(cause));
      }
    }
    return false;
  }

  /** The first line of a message: the others may show the place, which the optimizer has lost. */
  private static String sentence(Throwable failure) {
    String message = failure.getMessage();
    return message == null ? "" : message.split("\n")[0];
  }

  /** An expression as it is evaluated: columns by their positions, and what Spark replaces before a run replaced. */
  private static Expression bound(Expression node, List output) {
    if (node instanceof RuntimeReplaceable) return bound(((RuntimeReplaceable) node).replacement(), output);
    if (node instanceof AttributeReference) {
      for (int i = 0; i < output.size(); i++) {
        Attribute attribute = (Attribute) output.get(i);
        if (attribute.exprId().equals(((AttributeReference) node).exprId())) {
          return new BoundReference(i, attribute.dataType(), attribute.nullable());
        }
      }
      return node;
    }
    List children = new ArrayList();
    for (Object child : list(node.children())) children.add(bound((Expression) child, output));
    if (children.equals(list(node.children()))) return node;
    return (Expression) node.withNewChildren(
        scala.jdk.javaapi.CollectionConverters.asScala(children).toList());
  }

  private static boolean evaluable(Expression node) {
    if (!node.resolved() || !node.deterministic() || node instanceof Unevaluable || node instanceof SubqueryExpression
        || node instanceof AggregateFunction || node instanceof WindowFunction) return false;
    for (Object child : list(node.children())) if (!evaluable((Expression) child)) return false;
    return true;
  }
}
