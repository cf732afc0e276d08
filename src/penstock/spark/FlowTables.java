package penstock;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.WeakHashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils$;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.*;

/**
 * The sources and views of a flow as tables of a Spark session. A table has no rows in Spark: when a query is optimized, which is when it
 * runs, a rule asks Python for them, and puts them in the place of all tables of the query at once, so that they are of one tick.
 *
 * Compiled in the driver's JVM by Janino, hence the plain dialect: no generics, no lambdas.
 */
public class FlowTables {
  public static final String TABLE = "penstock.table";

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toList();
  }

  /** A table of a flow, which says what columns it has. */
  public static class Table extends BaseRelation {
    final String flow;
    final String name;
    private final SQLContext context;
    private final StructType schema;

    Table(String flow, String name, SQLContext context, StructType schema) {
      this.flow = flow;
      this.name = name;
      this.context = context;
      this.schema = schema;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }

    public String toString() {
      return "flow table " + name;
    }
  }

  /** A Dataset that stands for a source or view; columns are those of the DDL, with the name of the table in their metadata. */
  public Object table(org.apache.spark.sql.classic.SparkSession session, String flow, String name, String ddl) {
    StructField[] fields = CharVarcharUtils$.MODULE$.replaceCharVarcharWithStringInSchema(StructType.fromDDL(ddl)).fields();
    for (int i = 0; i < fields.length; i++) {
      Metadata metadata = new MetadataBuilder().withMetadata(fields[i].metadata()).putString(TABLE, name).build();
      fields[i] = new StructField(fields[i].name(), fields[i].dataType(), fields[i].nullable(), metadata);
    }
    return session.baseRelationToDataFrame(new Table(flow, name, session.sqlContext(), new StructType(fields)));
  }

  /** Whether a name is that of a table of a flow among the temporary views of a session. */
  public boolean isTable(org.apache.spark.sql.classic.SparkSession session, String flow, String name) {
    scala.Option view = session.sessionState().catalog().getRawTempView(name);
    if (view.isEmpty()) return false;
    scala.Option plan = ((org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation) view.get()).plan();
    return plan.isDefined() && holds((LogicalPlan) plan.get(), flow);
  }

  private static boolean owned(Object node, String flow) {
    if (!(node instanceof LogicalRelation)) return false;
    Object relation = ((LogicalRelation) node).relation();
    return relation instanceof Table && ((Table) relation).flow.equals(flow);
  }

  /** Whether a plan reads a table of a flow. */
  private static boolean holds(LogicalPlan plan, String flow) {
    if (owned(plan, flow)) return true;
    for (Object child : list(plan.children())) if (holds((LogicalPlan) child, flow)) return true;
    for (Object child : list(plan.subqueries())) if (holds((LogicalPlan) child, flow)) return true;
    return false;
  }

  /** Let queries of a session read the tables of a flow; `rows` gives the Dataset of a query and a table, or a text that is an error. */
  public Object install(org.apache.spark.sql.classic.SparkSession session, String flow, BiFunction rows) {
    Reading rule = new Reading(flow, rows);
    List rules = new ArrayList(list(session.experimental().extraOptimizations()));
    rules.add(rule);
    session.experimental().extraOptimizations_$eq(seq(rules));
    return rule;
  }

  public void uninstall(org.apache.spark.sql.classic.SparkSession session, Object rule) {
    List rules = new ArrayList(list(session.experimental().extraOptimizations()));
    rules.remove(rule);
    session.experimental().extraOptimizations_$eq(seq(rules));
  }

  /** Puts rows in the place of tables. Subqueries are optimized before the query that they are in, and belong to it. */
  public static class Reading extends Rule {
    private final String flow;
    private final BiFunction rows;
    private final Map queries = java.util.Collections.synchronizedMap(new WeakHashMap());

    Reading(String flow, BiFunction rows) {
      this.flow = flow;
      this.rows = rows;
    }

    public TreeNode apply(TreeNode node) {
      LogicalPlan plan = (LogicalPlan) node;
      boolean inner = plan instanceof Subquery;
      boolean reads = holds(plan, flow);
      scala.Option tracker = QueryPlanningTracker$.MODULE$.get();
      Object known = null;
      if (tracker.isDefined()) known = queries.get(tracker.get());
      if (!reads && (inner || known == null)) return plan;
      String query = UUID.randomUUID().toString();
      if (known != null) query = (String) known;
      if (known == null && tracker.isDefined()) queries.put(tracker.get(), query);
      if (reads) plan = filled(plan, query);
      if (!inner) {
        // When something fails before this, the query is forgotten on the other side, too: newer ones take its place.
        if (tracker.isDefined()) queries.remove(tracker.get());
        rows.apply(query, null);
      }
      return plan;
    }

    private LogicalPlan filled(LogicalPlan plan, final String query) {
      return (LogicalPlan) plan.transformWithSubqueries(new scala.runtime.AbstractPartialFunction() {
        public boolean isDefinedAt(Object node) {
          return owned(node, flow);
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
          if (!isDefinedAt(node)) return otherwise.apply(node);
          LogicalRelation table = (LogicalRelation) node;
          Object answer = rows.apply(query, ((Table) table.relation()).name);
          if (answer instanceof String) throw new IllegalStateException((String) answer);
          LogicalPlan read = ((org.apache.spark.sql.classic.Dataset) answer).queryExecution().analyzed();
          List columns = new ArrayList();
          for (int i = 0; i < table.output().size(); i++) {
            Attribute column = (Attribute) table.output().apply(i);
            columns.add(new Alias((Attribute) read.output().apply(i), column.name(), column.exprId(), column.qualifier(),
                scala.Option.apply(column.metadata()), seq(new ArrayList())));
          }
          return new Project(seq(columns), read);
        }
      });
    }
  }
}
