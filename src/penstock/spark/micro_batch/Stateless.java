package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.types.*;

/** Queries over rows that come in batches: what of one needs more than one batch, and what becomes of operations. */
public class Stateless {
  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
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
    if (plan instanceof UnionLoop) return "a recursive query";
    if (plan instanceof ScriptTransformation) return "TRANSFORM";
    for (Object one : list(plan.expressions())) {
      String place = place((Expression) one);
      if (place != null) return place;
    }
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

  /** Whether a plan asks for the time or for random values, so that it may say something else when it is planned again. */
  public boolean isVolatile(LogicalPlan plan) {
    for (Object one : list(plan.expressions())) {
      if (isVolatile((Expression) one)) return true;
    }
    for (Object one : list(plan.subqueries())) {
      if (isVolatile((LogicalPlan) one)) return true;
    }
    for (Object child : list(plan.children())) {
      if (isVolatile((LogicalPlan) child)) return true;
    }
    return false;
  }

  private static boolean isVolatile(Expression expression) {
    if (expression instanceof CurrentTimestampLike || expression instanceof CurrentDate
        || expression instanceof LocalTimestamp || expression instanceof CurrentTime
        || expression instanceof ExpressionWithRandomSeed) {
      return true;
    }
    if (expression instanceof Cast && ((Cast) expression).child() instanceof Literal) {
      // CAST('today' AS DATE) asks for the time too.
      boolean isText = ((Cast) expression).child().dataType() instanceof StringType;
      DataType type = expression.dataType();
      if (isText && (type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType)) return true;
    }
    for (Object child : list(expression.children())) {
      if (isVolatile((Expression) child)) return true;
    }
    return false;
  }

  /** What of an expression says where in its batch a row stands, in words; null when nothing does. */
  private static String place(Expression expression) {
    if (expression instanceof MonotonicallyIncreasingID) return "monotonically_increasing_id()";
    if (expression instanceof SparkPartitionID) return "spark_partition_id()";
    for (Object child : list(expression.children())) {
      String inner = place((Expression) child);
      if (inner != null) return inner;
    }
    return null;
  }

  /**
   * The query with the column `operation` carried along, when it only projects and filters: an update that a filter does not let pass
   * becomes a delete, deletes pass every filter. `rows` are those that the query reads, without the column; null for other queries.
   */
  public Object carried(
      org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, LogicalPlan rows, String operation) {
    LogicalPlan inlined = new org.apache.spark.sql.catalyst.optimizer.InlineCTE(true, false).apply(plan);
    LogicalPlan changed = carry(inlined, rows, operation);
    return changed == null ? null : org.apache.spark.sql.classic.Dataset.ofRows(session, changed);
  }

  private static LogicalPlan carry(LogicalPlan plan, LogicalPlan rows, String operation) {
    // A subquery becomes a join, which may put the rows of a key into another order.
    if (!list(plan.subqueries()).isEmpty()) return null;
    if (plan.equals(rows)) {
      Project project = (Project) plan;
      for (Object one : list(project.child().output())) {
        if (((Attribute) one).name().equals(operation)) return with(project.projectList(), (Attribute) one, project.child());
      }
      return null;
    }
    if (plan instanceof SubqueryAlias || plan instanceof View) {
      return carry((LogicalPlan) list(plan.children()).get(0), rows, operation);
    }
    if (plan instanceof Project) {
      LogicalPlan child = carry(((Project) plan).child(), rows, operation);
      return child == null ? null : with(((Project) plan).projectList(), last(child), child);
    }
    if (plan instanceof Filter) {
      LogicalPlan child = carry(((Filter) plan).child(), rows, operation);
      if (child == null) return null;
      Attribute before = last(child);
      Expression passes = ((Filter) plan).condition();
      Expression gone = new If(is(before, "i"), Literal.create(null, before.dataType()), text("d"));
      Expression after = new If(is(before, "d"), before, new If(passes, before, gone));
      Alias renamed = new Alias(after, operation, NamedExpression.newExprId(), seq(new ArrayList()),
          scala.Option.empty(), seq(new ArrayList()));
      LogicalPlan projected = with(plan.output(), renamed, child);
      return new Filter(new IsNotNull(last(projected)), projected);
    }
    return null;
  }

  private static Expression is(Attribute column, String value) {
    return new EqualNullSafe(column, text(value));
  }

  private static Expression text(String value) {
    return Literal.create(org.apache.spark.unsafe.types.UTF8String.fromString(value),
        org.apache.spark.sql.types.DataTypes.StringType);
  }

  private static Attribute last(LogicalPlan plan) {
    List output = list(plan.output());
    return (Attribute) output.get(output.size() - 1);
  }

  private static LogicalPlan with(Object columns, NamedExpression more, LogicalPlan child) {
    List all = new ArrayList(list(columns));
    all.add(more);
    return new Project(seq(all), child);
  }

  /** Whether columns of a query are those of the rows that it reads, as they are, and no row is made into several. */
  public boolean passes(LogicalPlan plan, LogicalPlan rows, List names) {
    if (multiplies(plan)) return false;
    for (Object name : names) {
      boolean found = false;
      for (Object one : list(plan.output())) {
        Attribute column = (Attribute) one;
        if (column.name().equals(name)) found = rows.outputSet().contains(column);
      }
      if (!found) return false;
    }
    return true;
  }

  /** For each column of a query the names of those of the rows that it is made of; null where that is not known. */
  public List origins(LogicalPlan plan, LogicalPlan rows) {
    LogicalPlan inlined = new org.apache.spark.sql.catalyst.optimizer.InlineCTE(true, false).apply(plan);
    Map computed = new HashMap();
    computed(inlined, computed);
    List all = new ArrayList();
    for (Object column : list(inlined.output())) {
      List names = new ArrayList();
      all.add(origins((Expression) column, computed, rows, names) ? names : null);
    }
    return all;
  }

  /** What projections compute, by the id of the column. */
  private static void computed(LogicalPlan plan, Map computed) {
    if (plan instanceof Project) {
      for (Object one : list(((Project) plan).projectList())) {
        if (one instanceof Alias) computed.put(((Alias) one).exprId(), ((Alias) one).child());
      }
    }
    for (Object child : list(plan.children())) computed((LogicalPlan) child, computed);
  }

  private static boolean origins(Expression expression, Map computed, LogicalPlan rows, List names) {
    if (!expression.deterministic()) return false;
    if (expression instanceof Attribute) {
      Attribute column = (Attribute) expression;
      if (rows.outputSet().contains(column)) {
        if (!names.contains(column.name())) names.add(column.name());
        return true;
      }
      Object made = computed.get(column.exprId());
      return made != null && origins((Expression) made, computed, rows, names);
    }
    for (Object child : list(expression.children())) {
      if (!origins((Expression) child, computed, rows, names)) return false;
    }
    return true;
  }

  /** Whether a union, which may have another column under the name of a key, or a generator gives several rows for one. */
  private static boolean multiplies(LogicalPlan plan) {
    if (plan instanceof Union || plan instanceof Generate || plan instanceof Expand) return true;
    for (Object child : list(plan.children())) {
      if (multiplies((LogicalPlan) child)) return true;
    }
    return false;
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toList();
  }
}
