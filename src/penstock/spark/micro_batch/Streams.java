package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What penstock asks of streaming plans that PySpark has no call for. */
public class Streams {
  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toList();
  }

  /** The names of sources in a plan that can only be read as a stream. */
  public List streamingOnly(LogicalPlan plan) {
    List found = new ArrayList();
    for (Object leaf : list(plan.collectLeaves())) {
      if (leaf instanceof StreamingRelationV2) {
        StreamingRelationV2 relation = (StreamingRelationV2) leaf;
        if (!relation.table().capabilities().contains(TableCapability.BATCH_READ)) found.add(relation.sourceName());
      }
    }
    return found;
  }

  /** Whether time alone changes what a plan keeps: Spark then makes batches without rows for ever. */
  public boolean followsClock(LogicalPlan plan) {
    if (plan instanceof TransformWithStateInPySpark
        && ((TransformWithStateInPySpark) plan).timeMode().toString().startsWith("ProcessingTime")) return true;
    if (plan instanceof FlatMapGroupsInPandasWithState
        && ((FlatMapGroupsInPandasWithState) plan).timeout().toString().startsWith("ProcessingTime")) return true;
    for (Object child : list(plan.children())) {
      if (followsClock((LogicalPlan) child)) return true;
    }
    return false;
  }

  /** The streaming leaves of a plan that have options of their own, such as Kafka's topics, in the order of the plan. */
  public List relations(LogicalPlan plan) {
    List found = new ArrayList();
    for (Object leaf : list(plan.collectLeaves())) {
      if (leaf instanceof StreamingRelationV2) found.add(leaf);
    }
    return found;
  }

  /** What tells a leaf of a plan apart from its others, also after the plan has been changed. */
  public String key(LogicalPlan leaf) {
    return leaf.output().toString();
  }

  /**
   * What of a plan a checkpoint depends on, in the order of the plan: {"source", where it reads} and {"state", what it keeps}.
   * Expressions are written as SQL, without the numbers that differ from run to run.
   */
  public List shape(LogicalPlan plan) {
    List found = new ArrayList();
    shape(plan, found);
    return found;
  }

  private static void shape(LogicalPlan plan, List found) {
    for (Object child : list(plan.children())) shape((LogicalPlan) child, found);
    if (plan instanceof StreamingRelation) {
      found.add(new String[] {"source", ((StreamingRelation) plan).sourceName()});
    } else if (plan instanceof StreamingRelationV2) {
      StreamingRelationV2 relation = (StreamingRelationV2) plan;
      String place = "";
      for (Object key : new String[] {"subscribe", "subscribePattern", "assign", "path"}) {
        String value = relation.extraOptions().get(key);
        if (value != null) place = " " + value;
      }
      String named = relation.identifier().isEmpty() ? "" : " " + relation.identifier().get();
      found.add(new String[] {"source", relation.sourceName() + place + named});
    } else if (plan.isStreaming() && plan instanceof Aggregate) {
      Aggregate aggregate = (Aggregate) plan;
      found.add(new String[] {"state", "aggregate by " + sql(aggregate.groupingExpressions(), plan) + " of "
          + sql(aggregate.aggregateExpressions(), plan)});
    } else if (plan.isStreaming() && plan instanceof Deduplicate) {
      found.add(new String[] {"state", "duplicates by " + sql(((Deduplicate) plan).keys(), plan)});
    } else if (plan.isStreaming() && plan instanceof DeduplicateWithinWatermark) {
      found.add(new String[] {"state", "duplicates by " + sql(((DeduplicateWithinWatermark) plan).keys(), plan)});
    } else if (plan instanceof Join && ((Join) plan).left().isStreaming() && ((Join) plan).right().isStreaming()) {
      Join join = (Join) plan;
      String condition = join.condition().isEmpty() ? "" : " on " + ((Expression) join.condition().get()).sql();
      found.add(new String[] {"state", join.joinType().sql().toLowerCase() + " join of streams" + condition});
    } else if (plan.isStreaming() && plan instanceof TransformWithStateInPySpark) {
      found.add(new String[] {"state", "a processor by " + sql(((TransformWithStateInPySpark) plan).leftAttributes(), plan)});
    } else if (plan.isStreaming() && plan.nodeName().contains("State")) {
      found.add(new String[] {"state", plan.nodeName()});
    }
  }

  private static String sql(Object expressions, LogicalPlan plan) {
    List texts = new ArrayList();
    for (Object one : list(expressions)) {
      Expression expression = (Expression) one;
      texts.add(expression instanceof Attribute
          ? ((Attribute) expression).name() + " " + expression.dataType().sql()
          : expression.sql());
    }
    return String.join(", ", texts);
  }

  /**
   * The same query over all that its sources hold now: every streaming leaf is read as a batch, and watermarks are gone.
   * `more` holds further options of leaves, by their keys.
   */
  public Object batch(final org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, final Map more) {
    LogicalPlan changed = (LogicalPlan) plan.transformUpWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof StreamingRelation || node instanceof StreamingRelationV2
            || node instanceof EventTimeWatermark || node instanceof DeduplicateWithinWatermark;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (node instanceof StreamingRelation) {
          StreamingRelation relation = (StreamingRelation) node;
          LogicalRelation files = LogicalRelation$.MODULE$.apply(relation.dataSource().resolveRelation(true, false), false);
          boolean placed = relation.output().size() > files.output().size();  // where each row is from
          return renamed((LogicalPlan) (placed ? files.withMetadataColumns() : files), relation.output());
        }
        if (node instanceof StreamingRelationV2) {
          StreamingRelationV2 relation = (StreamingRelationV2) node;
          Map options = new HashMap(relation.extraOptions().asCaseSensitiveMap());
          Object further = more.get(relation.output().toString());
          if (further != null) options.putAll((Map) further);
          return renamed(
              DataSourceV2Relation$.MODULE$.create(
                  relation.table(), relation.catalog(), relation.identifier(), new CaseInsensitiveStringMap(options),
                  scala.Option.empty()),
              relation.output());
        }
        if (node instanceof EventTimeWatermark) return ((EventTimeWatermark) node).child();
        if (node instanceof DeduplicateWithinWatermark) {
          DeduplicateWithinWatermark once = (DeduplicateWithinWatermark) node;
          return new Deduplicate(once.keys(), once.child());
        }
        return otherwise.apply(node);
      }
    });
    return org.apache.spark.sql.classic.Dataset.ofRows(session, changed);
  }

  /** The plan with a column computed anew: as the uppermost projection of another plan over the same source has it. */
  public Object replaced(
      org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, LogicalPlan fresh, final String name) {
    final Alias wanted = alias((Project) fresh, name);
    LogicalPlan changed = (LogicalPlan) plan.transformUpWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Project && alias((Project) node, name) != null;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        Project project = (Project) node;
        List columns = new ArrayList();
        for (Object one : list(project.projectList())) {
          Alias old = one instanceof Alias && ((Alias) one).name().equals(name) ? (Alias) one : null;
          columns.add(old == null ? one : new Alias(wanted.child(), name, old.exprId(), old.qualifier(),
              old.explicitMetadata(), old.nonInheritableMetadataKeys()));
        }
        return new Project(seq(columns), project.child());
      }
    });
    return org.apache.spark.sql.classic.Dataset.ofRows(session, changed);
  }

  private static Alias alias(Project project, String name) {
    for (Object one : list(project.projectList())) {
      if (one instanceof Alias && ((Alias) one).name().equals(name)) return (Alias) one;
    }
    return null;
  }

  /** The columns of a batch under the identities that the rest of the plan knows. */
  private static LogicalPlan renamed(LogicalPlan batch, Object wanted) {
    List columns = new ArrayList();
    for (Object one : list(wanted)) {
      Attribute attribute = (Attribute) one;
      Attribute found = null;
      for (Object other : list(batch.output())) {
        if (((Attribute) other).name().equals(attribute.name())) found = (Attribute) other;
      }
      if (found == null) throw new IllegalStateException("no column " + attribute.name() + " in the batch");
      columns.add(new Alias(found, attribute.name(), attribute.exprId(), attribute.qualifier(),
          scala.Option.apply(attribute.metadata()), seq(new ArrayList())));
    }
    return new Project(seq(columns), batch);
  }
}
