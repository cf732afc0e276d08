package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

/** What the analyzer makes of calls, and which rows a call raises for: asked for many calls and rows at once. */
public class Sweep {
  /** For each text: "ok", the type of its value, the number of casts in the plan and its shape; or "no" and the reason. */
  public List probe(final org.apache.spark.sql.classic.SparkSession session, final String relation, final List texts) {
    List found = new ArrayList();
    for (Object text : texts) {
      try {
        LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) session.sql("SELECT " + text + " AS v FROM " + relation))
            .queryExecution().analyzed();
        Attribute only = (Attribute) plan.output().head();
        found.add("ok\t" + only.dataType().catalogString() + "\t" + casts(plan) + "\t" + shape(plan));
      } catch (Throwable error) {
        found.add("no\t" + condition(error));
      }
    }
    return found;
  }

  /** The operator that a call brings with it: Aggregate, Generate, Window, or none. */
  private static String shape(LogicalPlan plan) {
    String name = plan.getClass().getSimpleName();
    if (name.equals("Aggregate") || name.equals("Generate") || name.equals("Window")) return name;
    return plan.children().isEmpty() ? "" : shape((LogicalPlan) plan.children().head());
  }

  private static int casts(LogicalPlan plan) {
    int count = 0;
    for (Object expression : list(plan.expressions())) count += casts((Expression) expression);
    for (Object child : list(plan.children())) count += casts((LogicalPlan) child);
    return count;
  }

  private static int casts(Expression node) {
    int count = node instanceof Cast ? 1 : 0;
    for (Object child : list(node.children())) count += casts((Expression) child);
    return count;
  }

  /** For each column of a projection over local rows, one text per row: empty, or the condition of the error that it raises, interpreted or compiled. */
  public List raised(final org.apache.spark.sql.classic.SparkSession session, final String query, final boolean compiled) {
    return (List) session.withActive(new scala.runtime.AbstractFunction0() {
      public Object apply() {
        LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) session.sql(query)).queryExecution().optimizedPlan();
        Project project = (Project) plan;
        List layers = new ArrayList();
        LogicalPlan below = project.child();
        while (below instanceof Project) {
          layers.add(list(((Project) below).projectList()));
          below = ((Project) below).child();
        }
        LocalRelation input = (LocalRelation) below;
        List attributes = list(input.output());
        List rows = list(input.data());
        List found = new ArrayList();
        for (Object item : list(project.projectList())) {
          Expression whole = item instanceof Alias ? ((Alias) item).child() : (Expression) item;
          for (Object layer : layers) whole = inlined(whole, (List) layer);
          Expression bound = bind(whole, attributes);
          UnsafeProjection projection = compiled ? UnsafeProjection.create(bound) : null;
          StringBuilder line = new StringBuilder();
          for (Object row : rows) {
            try {
              if (compiled) projection.apply((InternalRow) row);
              else bound.eval((InternalRow) row);
            } catch (Throwable error) {
              line.append(condition(error));
            }
            line.append('\t');
          }
          found.add(line.toString());
        }
        return found;
      }
    });
  }

  /** The expression with what the projection below it computes in the place of its columns. */
  private static Expression inlined(Expression whole, final List columns) {
    return (Expression) whole.transformDown(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Attribute;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        for (Object column : columns) {
          if (column instanceof Alias && ((Alias) column).exprId().equals(((Attribute) node).exprId())) return ((Alias) column).child();
        }
        return node;
      }
    });
  }

  private static Expression bind(Expression whole, final List attributes) {
    return (Expression) whole.transformDown(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Attribute;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        Attribute attribute = (Attribute) node;
        for (int i = 0; i < attributes.size(); i++) {
          Attribute own = (Attribute) attributes.get(i);
          if (own.exprId().equals(attribute.exprId())) return new BoundReference(i, own.dataType(), own.nullable());
        }
        return node;
      }
    });
  }

  private static String condition(Throwable error) {
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof SparkThrowable && ((SparkThrowable) at).getCondition() != null) {
        return ((SparkThrowable) at).getCondition();
      }
    }
    return error.getClass().getName();
  }

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }
}
