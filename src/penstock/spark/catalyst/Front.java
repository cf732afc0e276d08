package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.catalog.TempVariableManager;
import org.apache.spark.sql.catalyst.catalog.VariableDefinition;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.HyperLogLogPlusPlus;
import org.apache.spark.sql.catalyst.expressions.aggregate.PivotFirst;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils$;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkOptimizer;
import org.apache.spark.sql.types.*;

/**
 * What penstock asks of Catalyst that plan.toJSON cannot answer: types, nullability and evaluation modes of every
 * expression, plans in which the tick's time is not folded, and leaves that Catalyst cannot look into.
 *
 * Compiled in the driver's JVM by the Janino compiler that Spark itself uses for generated code, hence the plain dialect:
 * no generics, no lambdas.
 */
public class Front {
  public static final String RELATION = "penstock.relation";
  public static final String POSITION = "penstock.position";

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toList();
  }

  // ---------------------------------------------------------------- rewriting

  /** The rules named in the session's excludedRules are left out, also those that Spark normally insists on. */
  public static class LenientOptimizer extends SparkOptimizer {
    public LenientOptimizer(org.apache.spark.sql.classic.SparkSession session) {
      super(
          session.sessionState().catalogManager(),
          session.sessionState().catalog(),
          session.sessionState().experimentalMethods());
    }

    public scala.collection.immutable.Seq nonExcludableRules() {
      return seq(new ArrayList());
    }
  }

  /** The rules that Spark never leaves out. */
  public List neededRules(org.apache.spark.sql.classic.SparkSession session) {
    return list(session.sessionState().optimizer().nonExcludableRules());
  }

  /** The values of settings, by name; those that Spark does not know are left out. */
  public java.util.Map settings(org.apache.spark.sql.classic.SparkSession session, List names) {
    java.util.Map values = new java.util.HashMap();
    for (Object name : names) {
      try {
        values.put(name, session.sessionState().conf().getConfString((String) name));
      } catch (java.util.NoSuchElementException unknown) {
        continue;
      }
    }
    return values;
  }

  public LogicalPlan optimize(final org.apache.spark.sql.classic.SparkSession session, final LogicalPlan plan) {
    return (LogicalPlan) session.withActive(new scala.runtime.AbstractFunction0() {
      public Object apply() {
        org.apache.spark.sql.catalyst.plans.logical.LogicalPlan ready = (LogicalPlan) plan.clone();
        ready.setAnalyzed();
        return withCollationKeys((LogicalPlan) new LenientOptimizer(session).execute(ready));
      }
    });
  }

  /** Orders and partitions of collated text by its collation key: bytes that compare as the text does. Spark does so in joins. */
  private static LogicalPlan withCollationKeys(LogicalPlan plan) {
    LogicalPlan ordered = (LogicalPlan) plan.transformAllExpressionsWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof SortOrder;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        SortOrder order = (SortOrder) node;
        Expression key = CollationKey$.MODULE$.injectCollationKey(order.child());
        if (key.equals(order.child())) return order;
        return new SortOrder(key, order.direction(), order.nullOrdering(), seq(new ArrayList()));
      }
    });
    return (LogicalPlan) ordered.transformWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Window;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        Window window = (Window) node;
        List keys = new ArrayList();
        for (Object key : list(window.partitionSpec())) {
          keys.add(CollationKey$.MODULE$.injectCollationKey((Expression) key));
        }
        if (keys.equals(list(window.partitionSpec()))) return window;
        return new Window(window.windowExpressions(), seq(keys), window.orderSpec(), window.child(), window.hint());
      }
    });
  }

  /**
   * The analyzed plan of a query in which names of several parts may stand for relations of the flow: relations maps such a name,
   * in lower case and with points, to its Dataset. A point cannot be in the name of a common table expression unless it is
   * quoted, so nothing that the query itself defines is hidden.
   */
  public LogicalPlan analyze(org.apache.spark.sql.classic.SparkSession session, String query, java.util.Map relations)
      throws Exception {
    LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(query);
    return org.apache.spark.sql.classic.Dataset.ofRows(session, named(parsed, relations)).queryExecution().analyzed();
  }

  /** Whether a text is a statement that does something, and no query. */
  public boolean isStatement(org.apache.spark.sql.classic.SparkSession session, String text) throws Exception {
    return isStatement(session, session.sessionState().sqlParser().parsePlan(text));
  }

  private static boolean isStatement(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan) throws Exception {
    if (plan instanceof Command || plan instanceof ParsedStatement || plan instanceof CompoundPlanStatement) return true;
    if (plan instanceof org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier) {
      return isStatement(session, withSomeName((org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier) plan));
    }
    if (plan instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate) {
      return executesStatement(session, (org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate) plan);
    }
    for (Object child : list(plan.children())) if (isStatement(session, (LogicalPlan) child)) return true;
    return false;
  }

  /** What a plan around IDENTIFIER(...) becomes when the name is known. */
  private static LogicalPlan withSomeName(org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier plan) {
    List name = new ArrayList();
    name.add("some_name");
    return (LogicalPlan) plan.planBuilder().apply(seq(name), plan.children());
  }

  /** Whether EXECUTE IMMEDIATE sets variables or has the text of a statement. Spark runs it when it is asked to analyze it. */
  private static boolean executesStatement(
      org.apache.spark.sql.classic.SparkSession session,
      org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate execute) throws Exception {
    if (!execute.targetVariables().isEmpty()) return true;
    List columns = new ArrayList();
    columns.add(alias((Expression) execute.sqlStmtStr(), "text", NamedExpression$.MODULE$.newExprId()));
    Object text;
    try {
      LogicalPlan selected = org.apache.spark.sql.classic.Dataset.ofRows(session, new Project(seq(columns), new OneRowRelation()))
          .queryExecution().analyzed();
      text = ((Expression) ((Expression) selected.expressions().apply(0)).children().apply(0)).eval(null);
    } catch (Exception error) {
      return false; // Spark refuses the text, and says why when it analyzes the query
    }
    if (!(text instanceof org.apache.spark.unsafe.types.UTF8String)) return false;
    try {
      return isStatement(session, (LogicalPlan) session.sessionState().sqlParser().parsePlan(text.toString()));
    } catch (org.apache.spark.sql.catalyst.parser.ParseException error) {
      // Parameters may stand where only their values are understood.
      return !execute.args().isEmpty() && !text.toString().toUpperCase(java.util.Locale.ROOT)
          .matches("(?s)[(\\s]*(SELECT|WITH|VALUES|FROM|TABLE)\\b.*");
    }
  }

  private static LogicalPlan named(LogicalPlan plan, final java.util.Map relations) {
    return (LogicalPlan) plan.transformWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof UnresolvedWith || (node instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
            && relations.containsKey(name(node)));
      }

      private String name(Object node) {
        List parts = list(((org.apache.spark.sql.catalyst.analysis.UnresolvedRelation) node).multipartIdentifier());
        if (parts.size() < 2) return "";
        return String.join(".", parts).toLowerCase(java.util.Locale.ROOT);
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        if (node instanceof UnresolvedWith) {
          UnresolvedWith with = (UnresolvedWith) node;
          List definitions = new ArrayList();
          for (Object each : list(with.cteRelations())) {
            scala.Tuple3 definition = (scala.Tuple3) each;
            definitions.add(new scala.Tuple3(
                definition._1(), named((LogicalPlan) definition._2(), relations), definition._3()));
          }
          return with.copy((LogicalPlan) with.child(), seq(definitions), with.allowRecursion());
        }
        List parts = new ArrayList(list(((org.apache.spark.sql.catalyst.analysis.UnresolvedRelation) node).multipartIdentifier()));
        String last = (String) parts.remove(parts.size() - 1);
        LogicalPlan relation =
            ((org.apache.spark.sql.classic.Dataset) relations.get(name(node))).queryExecution().analyzed();
        return new SubqueryAlias(new org.apache.spark.sql.catalyst.AliasIdentifier(last, seq(parts)), relation);
      }
    });
  }

  /**
   * The tables that a query names and does not define itself, with the place in its text where each begins: [name, place, name, place, ...]. The parts of
   * a name have line feeds between them.
   */
  public List tableNames(org.apache.spark.sql.classic.SparkSession session, String query) throws Exception {
    List names = new ArrayList();
    java.util.Set defined = new java.util.HashSet();
    tableNames(session.sessionState().sqlParser().parsePlan(query), names, defined);
    List others = new ArrayList();
    for (int i = 0; i < names.size(); i += 2) {
      if (defined.contains(((String) names.get(i)).toLowerCase(java.util.Locale.ROOT))) continue;
      others.add(names.get(i));
      others.add(names.get(i + 1));
    }
    return others;
  }

  private static void tableNames(LogicalPlan plan, List names, java.util.Set defined) {
    if (plan instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedRelation && plan.origin().startIndex().isDefined()) {
      names.add(String.join("\n",
          list(((org.apache.spark.sql.catalyst.analysis.UnresolvedRelation) plan).multipartIdentifier())));
      names.add(plan.origin().startIndex().get());
    }
    if (plan instanceof UnresolvedWith) {
      for (Object each : list(((UnresolvedWith) plan).cteRelations())) {
        scala.Tuple3 definition = (scala.Tuple3) each;
        defined.add(((String) definition._1()).toLowerCase(java.util.Locale.ROOT));
        tableNames((LogicalPlan) definition._2(), names, defined);
      }
    }
    for (Object child : list(plan.children())) tableNames((LogicalPlan) child, names, defined);
    for (Object child : list(plan.subqueries())) tableNames((LogicalPlan) child, names, defined);
  }

  /** Give a session the variables of another one (DECLARE), with the values that they have now. */
  public void copyVariables(
      org.apache.spark.sql.classic.SparkSession from, org.apache.spark.sql.classic.SparkSession to) throws Exception {
    TempVariableManager own = from.sessionState().catalogManager().tempVariableManager();
    if (own.isEmpty()) return;
    // The manager finds variables by name and lists them to nobody.
    java.lang.reflect.Field field = TempVariableManager.class.getDeclaredField("variables");
    field.setAccessible(true);
    java.util.Map definitions;
    synchronized (own) {
      definitions = new java.util.HashMap(
          scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.mutable.Map) field.get(own)));
    }
    for (Object entry : definitions.entrySet()) {
      java.util.Map.Entry definition = (java.util.Map.Entry) entry;
      List name = new ArrayList();
      name.add(definition.getKey());
      to.sessionState().catalogManager().tempVariableManager()
          .create(seq(name), (VariableDefinition) definition.getValue(), true);
    }
  }

  /** Name, type and value, as SQL, of every variable that a plan reads: [name, type, value, name, type, value, ...]. */
  public List variables(LogicalPlan plan) {
    List triples = new ArrayList();
    variables(plan, triples);
    return triples;
  }

  private static void variables(LogicalPlan plan, List triples) {
    for (Object child : list(plan.children())) variables((LogicalPlan) child, triples);
    for (Object expression : list(plan.expressions())) variables((Expression) expression, triples);
  }

  private static void variables(Expression node, List triples) {
    if (node instanceof VariableReference) {
      VariableReference variable = (VariableReference) node;
      described(variable.identifier().name(), variable.varDef(), triples);
    }
    if (node instanceof SubqueryExpression) variables((LogicalPlan) ((SubqueryExpression) node).plan(), triples);
    for (Object child : list(node.children())) variables((Expression) child, triples);
  }

  private static void described(String name, VariableDefinition definition, List triples) {
    triples.add(name);
    triples.add(definition.currentValue().dataType().sql());
    triples.add(definition.currentValue().sql());
  }

  /** The same for the variables of a session that have one of some names. */
  public List variablesNamed(org.apache.spark.sql.classic.SparkSession session, List names) {
    List triples = new ArrayList();
    for (Object name : names) {
      List parts = new ArrayList();
      parts.add(name);
      scala.Option definition = session.sessionState().catalogManager().tempVariableManager().get(seq(parts));
      if (definition.isDefined()) described((String) name, (VariableDefinition) definition.get(), triples);
    }
    return triples;
  }

  /**
   * The plan with current_timestamp() and its kin, and texts such as 'today' that are cast to times, replaced by a scalar subquery over
   * the marker relation.
   */
  public LogicalPlan bindTime(LogicalPlan plan, LogicalPlan marker) {
    return bound(plan, marker, null);
  }

  /**
   * The plan as it was planned first: current_timestamp() and its kin are the moment in microseconds, and random numbers and UUIDs
   * without a seed of the user's begin with `seed`.
   */
  public LogicalPlan fixed(LogicalPlan plan, long micros, final long seed) {
    final java.time.Instant moment = java.time.Instant.EPOCH.plus(micros, java.time.temporal.ChronoUnit.MICROS);
    LogicalPlan timed = bound(plan, null, new Literal(Long.valueOf(micros), DataTypes.TimestampType));
    return (LogicalPlan) timed.transformAllExpressionsWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      private long next = seed;

      public boolean isDefinedAt(Object node) {
        return node instanceof CurrentTime || node instanceof Uuid
            || (node instanceof Rand && ((Rand) node).hideSeed()) || (node instanceof Randn && ((Randn) node).hideSeed());
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        if (!(node instanceof CurrentTime)) return ((ExpressionWithRandomSeed) node).withNewSeed(next++ * 0x9E3779B97F4A7C15L);
        CurrentTime time = (CurrentTime) node;
        long nanos = org.apache.spark.sql.catalyst.util.DateTimeUtils.instantToNanosOfDay(moment, (String) time.timeZoneId().get());
        nanos = org.apache.spark.sql.catalyst.util.DateTimeUtils.truncateTimeToPrecision(nanos, time.precision());
        return new Literal(Long.valueOf(nanos), time.dataType());
      }
    });
  }

  private static LogicalPlan bound(LogicalPlan plan, final LogicalPlan marker, final Literal moment) {
    return (LogicalPlan) plan.transformAllExpressionsWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof CurrentTimestamp || node instanceof Now
            || node instanceof CurrentDate || node instanceof LocalTimestamp || !momentOf(node).isEmpty();
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        Expression now = moment;
        if (marker != null) {
          now = new ScalarSubquery(
              marker, seq(new ArrayList()), NamedExpression$.MODULE$.newExprId(), seq(new ArrayList()),
              scala.Option.empty(), scala.Option.empty(), scala.Option.empty());
        }
        if (node instanceof CurrentDate) {
          return new Cast(now, DataTypes.DateType, ((CurrentDate) node).timeZoneId());
        }
        if (node instanceof LocalTimestamp) {
          return new Cast(now, DataTypes.TimestampNTZType, ((LocalTimestamp) node).timeZoneId());
        }
        if (node instanceof Cast) return moment((Cast) node, now);
        return now;
      }
    });
  }

  /** The word for a moment that an expression casts to a date or timestamp, as CAST('today' AS DATE) does; empty for others. */
  private static String momentOf(Object node) {
    if (!(node instanceof Cast) || !(((Cast) node).child() instanceof Literal)) return "";
    Literal literal = (Literal) ((Cast) node).child();
    DataType type = ((Cast) node).dataType();
    if (!(literal.dataType() instanceof StringType) || literal.value() == null) return "";
    if (!(type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType)) return "";
    String word = literal.value().toString().trim().toLowerCase(java.util.Locale.ROOT);
    boolean moves = word.equals("now") || word.equals("today") || word.equals("yesterday") || word.equals("tomorrow");
    return moves ? word : "";
  }

  private static Expression moment(Cast cast, Expression now) {
    String word = momentOf(cast);
    if (word.equals("now") && cast.dataType() instanceof TimestampType) return now;
    if (word.equals("now")) return new Cast(now, cast.dataType(), cast.timeZoneId());
    Expression day = new Cast(now, DataTypes.DateType, cast.timeZoneId());
    Literal one = new Literal(Integer.valueOf(1), DataTypes.IntegerType);
    if (word.equals("yesterday")) day = new DateSub(day, one);
    if (word.equals("tomorrow")) day = new DateAdd(day, one);
    if (cast.dataType() instanceof DateType) return day;
    return new Cast(day, cast.dataType(), cast.timeZoneId());
  }

  /** Whether a plan asks for current_time(), which has no counterpart that is made of a timestamp. */
  public boolean readsTimeOfDay(LogicalPlan plan) {
    for (Object item : list(plan.expressions())) if (readsTimeOfDay((Expression) item)) return true;
    for (Object child : list(plan.children())) if (readsTimeOfDay((LogicalPlan) child)) return true;
    for (Object child : list(plan.subqueries())) if (readsTimeOfDay((LogicalPlan) child)) return true;
    return false;
  }

  private static boolean readsTimeOfDay(Expression node) {
    if (node instanceof CurrentTime) return true;
    for (Object child : list(node.children())) if (readsTimeOfDay((Expression) child)) return true;
    return false;
  }

  /** The relations that are not the flow's, each cut out and replaced by an opaque one: [name, plan, name, plan, ...]. */
  private List statics = new ArrayList();

  public List statics() {
    return statics;
  }

  public LogicalPlan cut(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan) {
    return cut(session, plan, null);
  }

  public static final String TABLE = "penstock.table"; // in the metadata of columns: see FlowTables.java

  /** The plan with the tables of a flow, which a DataFrame or a view of Spark's may read, replaced by relations of the flow. */
  public LogicalPlan adopt(LogicalPlan plan, final java.util.Map relations) {
    return (LogicalPlan) plan.transformWithSubqueries(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return relations.containsKey(tableOf(node));
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        LogicalPlan relation =
            ((org.apache.spark.sql.classic.Dataset) relations.get(tableOf(node))).queryExecution().analyzed();
        return renamed(relation, (LogicalPlan) node);
      }
    });
  }

  /** The tables of a flow that a plan reads. */
  public List tables(LogicalPlan plan) {
    List names = new ArrayList();
    tables(plan, names);
    return names;
  }

  private static void tables(LogicalPlan plan, List names) {
    String table = tableOf(plan);
    if (!table.isEmpty()) names.add(table);
    for (Object child : list(plan.children())) tables((LogicalPlan) child, names);
    for (Object child : list(plan.subqueries())) tables((LogicalPlan) child, names);
  }

  private static String tableOf(Object node) {
    if (!(node instanceof org.apache.spark.sql.execution.datasources.LogicalRelation)) return "";
    LogicalPlan plan = (LogicalPlan) node;
    if (plan.output().isEmpty()) return "";
    Metadata metadata = ((Attribute) plan.output().apply(0)).metadata();
    return metadata.contains(TABLE) ? metadata.getString(TABLE) : "";
  }

  /** A leaf whose columns have the identities of those of another plan. */
  private static LogicalPlan renamed(LogicalPlan leaf, LogicalPlan plan) {
    List aliases = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      Attribute old = (Attribute) plan.output().apply(i);
      aliases.add(new Alias((Attribute) leaf.output().apply(i), old.name(), old.exprId(), old.qualifier(),
          scala.Option.empty(), seq(new ArrayList())));
    }
    return new Project(seq(aliases), leaf);
  }

  private LogicalPlan cut(final org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, String alias) {
    if (isOurs(plan)) return plan;
    if (plan instanceof View && !holdsOurs(plan)) {
      return opaque(session, plan, ((View) plan).desc().identifier().unquotedString());
    }
    if (plan.children().isEmpty()) {
      if (plan instanceof LocalRelation || plan instanceof OneRowRelation || plan instanceof Range
          || plan instanceof CTERelationRef || plan instanceof UnionLoopRef) return plan;
      return opaque(session, plan, alias);
    }
    String below = alias;
    if (plan instanceof SubqueryAlias) below = ((SubqueryAlias) plan).identifier().toString();
    List children = new ArrayList();
    for (Object child : list(plan.children())) children.add(cut(session, (LogicalPlan) child, below));
    LogicalPlan done = (LogicalPlan) plan.withNewChildren(seq(children));
    return (LogicalPlan) done.transformExpressions(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof SubqueryExpression;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        SubqueryExpression subquery = (SubqueryExpression) node;
        return subquery.withNewPlan(cut(session, (LogicalPlan) subquery.plan(), null));
      }
    });
  }

  private LogicalPlan opaque(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, String alias) {
    String name = alias;
    if (name == null) name = "static_" + (statics.size() / 2 + 1);
    statics.add(name);
    statics.add(plan);
    return standIn(session, plan, name);
  }

  /** A relation of the flow, without rows, with the columns of a plan. */
  private static LogicalPlan standIn(
      org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, String name) {
    StructField[] fields = new StructField[plan.output().size()];
    for (int i = 0; i < fields.length; i++) {
      Attribute attribute = (Attribute) plan.output().apply(i);
      Metadata metadata = new MetadataBuilder().withMetadata(attribute.metadata())
          .putString(RELATION, name).putLong(POSITION, (long) i).build();
      fields[i] = new StructField(attribute.name(), attribute.dataType(), attribute.nullable(), metadata);
    }
    return renamed((LogicalPlan) empty(session, new StructType(fields)).queryExecution().analyzed(), plan);
  }

  /** The parts of a plan that have rows of their own, each once: [name or null, plan, name or null, plan, ...]. */
  public List leaves(LogicalPlan plan) {
    List leaves = new ArrayList();
    leaves(plan, null, leaves);
    return leaves;
  }

  private static void leaves(LogicalPlan plan, String alias, List leaves) {
    boolean isView = plan instanceof View;
    if (isView || plan.children().isEmpty()) {
      if (plan instanceof OneRowRelation || plan instanceof CTERelationRef || plan instanceof UnionLoopRef) return;
      for (int i = 1; i < leaves.size(); i += 2) if (((LogicalPlan) leaves.get(i)).sameResult(plan)) return;
      leaves.add(isView ? ((View) plan).desc().identifier().unquotedString() : alias);
      leaves.add(plan);
      return;
    }
    String below = plan instanceof SubqueryAlias ? ((SubqueryAlias) plan).identifier().toString() : null;
    // An alias holds for what is directly below it.
    for (Object child : list(plan.children())) leaves((LogicalPlan) child, below, leaves);
    for (Object child : list(plan.subqueries())) leaves((LogicalPlan) child, null, leaves);
  }

  /** A plan in which a relation of the flow stands in the place of every part that gives the same rows as another plan; null when none does. */
  public LogicalPlan feed(
      final org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, final LogicalPlan part, final String name) {
    boolean[] fed = new boolean[1];
    LogicalPlan over = feed(session, plan, part, name, fed);
    return fed[0] ? over : null;
  }

  private static LogicalPlan feed(
      final org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan, final LogicalPlan part,
      final String name, final boolean[] fed) {
    if (plan.output().size() == part.output().size() && plan.sameResult(part)) {
      fed[0] = true;
      return standIn(session, plan, name);
    }
    if (plan.children().isEmpty()) return plan;
    List children = new ArrayList();
    for (Object child : list(plan.children())) children.add(feed(session, (LogicalPlan) child, part, name, fed));
    LogicalPlan over = (LogicalPlan) plan.withNewChildren(seq(children));
    return (LogicalPlan) over.transformExpressions(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof SubqueryExpression;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        SubqueryExpression subquery = (SubqueryExpression) node;
        return subquery.withNewPlan(feed(session, (LogicalPlan) subquery.plan(), part, name, fed));
      }
    });
  }

  private static org.apache.spark.sql.classic.Dataset empty(
      org.apache.spark.sql.classic.SparkSession session, StructType schema) {
    org.apache.spark.api.java.JavaSparkContext context =
        org.apache.spark.api.java.JavaSparkContext.fromSparkContext(session.sparkContext());
    return (org.apache.spark.sql.classic.Dataset) session.createDataFrame(context.emptyRDD(), schema);
  }

  /** A Dataset without rows that Catalyst cannot look into, marked as a relation of the flow. */
  public org.apache.spark.sql.classic.Dataset relation(
      org.apache.spark.sql.classic.SparkSession session, String name, String ddl) {
    return relation(session, name, ddl, new ArrayList());
  }

  /** The same with the metadata of its columns, as columnMetadata gives it; none, or one per column. */
  public org.apache.spark.sql.classic.Dataset relation(
      org.apache.spark.sql.classic.SparkSession session, String name, String ddl, List columnMetadata) {
    // As a table's own columns: CHAR and VARCHAR are text whose declared length the comparison rules read from the metadata.
    StructField[] fields = CharVarcharUtils$.MODULE$.replaceCharVarcharWithStringInSchema(StructType.fromDDL(ddl)).fields();
    for (int i = 0; i < fields.length; i++) {
      MetadataBuilder metadata = new MetadataBuilder().withMetadata(fields[i].metadata());
      if (!columnMetadata.isEmpty()) metadata.withMetadata(Metadata.fromJson((String) columnMetadata.get(i)));
      metadata.putString(RELATION, name).putLong(POSITION, (long) i);
      fields[i] = new StructField(fields[i].name(), fields[i].dataType(), fields[i].nullable(), metadata.build());
    }
    return empty(session, new StructType(fields));
  }

  /** What Catalyst notes at each column of a plan and reads in plans above it, as JSON: session windows, lengths of CHAR, and the like. */
  public List columnMetadata(LogicalPlan plan) {
    List metadata = new ArrayList();
    for (Object column : list(plan.output())) {
      metadata.add(new MetadataBuilder().withMetadata(((Attribute) column).metadata())
          .remove(RELATION).remove(POSITION).build().json());
    }
    return metadata;
  }

  private static boolean isOurs(LogicalPlan plan) {
    if (!(plan instanceof LogicalRDD) || plan.output().isEmpty()) return false;
    return ((Attribute) plan.output().apply(0)).metadata().contains(RELATION);
  }

  private static boolean holdsOurs(LogicalPlan plan) {
    if (isOurs(plan)) return true;
    for (Object child : list(plan.children())) if (holdsOurs((LogicalPlan) child)) return true;
    for (Object child : list(plan.subqueries())) if (holdsOurs((LogicalPlan) child)) return true;
    return false;
  }

  /** The first offset of a zone, then instant and offset after it for each change, in seconds: 400 years of the last rules. */
  public List zoneRules(String name) {
    java.time.zone.ZoneRules rules =
        org.apache.spark.sql.catalyst.util.DateTimeUtils$.MODULE$.getZoneId(name).getRules();
    List flat = new ArrayList();
    flat.add(Integer.valueOf(rules.getOffset(java.time.Instant.MIN).getTotalSeconds()));
    java.time.Instant last = java.time.Instant.ofEpochSecond(15000000000L);
    java.time.zone.ZoneOffsetTransition change = rules.nextTransition(java.time.Instant.MIN);
    while (change != null && change.getInstant().isBefore(last)) {
      flat.add(Long.valueOf(change.toEpochSecond()));
      flat.add(Integer.valueOf(change.getOffsetAfter().getTotalSeconds()));
      change = rules.nextTransition(change.getInstant());
    }
    return flat;
  }

  /** Whether Spark takes a text for the name of a zone. */
  public boolean isZone(String name) {
    try {
      return org.apache.spark.sql.catalyst.util.DateTimeUtils$.MODULE$.getZoneId(name) != null;
    } catch (Exception none) {
      return false;
    }
  }

  /**
   * All zones, one line for those of the same rules: their names, the first offset, steps to each change with the offset after it, and
   * the yearly rules behind the last change; and the names that stand for another.
   */
  public String zoneTable() {
    java.util.Map groups = new java.util.LinkedHashMap();
    for (Object name : new java.util.TreeSet(java.time.ZoneId.getAvailableZoneIds())) {
      java.time.zone.ZoneRules rules = java.time.ZoneId.of((String) name).getRules();
      String names = (String) groups.get(rules);
      groups.put(rules, names == null ? name : names + "," + name);
    }
    StringBuilder out = new StringBuilder();
    for (Object rules : groups.keySet()) {
      out.append(groups.get(rules)).append(' ');
      zone(out, (java.time.zone.ZoneRules) rules);
      out.append('\n');
    }
    for (Object name : java.time.ZoneId.SHORT_IDS.keySet()) {
      out.append(name).append(" =").append(java.time.ZoneId.SHORT_IDS.get(name)).append('\n');
    }
    return out.toString();
  }

  private static void zone(StringBuilder out, java.time.zone.ZoneRules rules) {
    out.append(rules.getOffset(java.time.Instant.MIN).getTotalSeconds()).append(';');
    long last = 0;
    for (Object item : rules.getTransitions()) {
      java.time.zone.ZoneOffsetTransition change = (java.time.zone.ZoneOffsetTransition) item;
      out.append(change.toEpochSecond() - last).append(' ').append(change.getOffsetAfter().getTotalSeconds()).append(' ');
      last = change.toEpochSecond();
    }
    out.append(';');
    for (Object item : rules.getTransitionRules()) {
      java.time.zone.ZoneOffsetTransitionRule rule = (java.time.zone.ZoneOffsetTransitionRule) item;
      out.append(rule.getMonth().getValue()).append(',').append(rule.getDayOfMonthIndicator()).append(',');
      out.append(rule.getDayOfWeek() == null ? 0 : rule.getDayOfWeek().getValue()).append(',');
      out.append(rule.isMidnightEndOfDay() ? 86400 : rule.getLocalTime().toSecondOfDay()).append(',');
      out.append(rule.getTimeDefinition().ordinal()).append(',').append(rule.getStandardOffset().getTotalSeconds()).append(',');
      out.append(rule.getOffsetBefore().getTotalSeconds()).append(',').append(rule.getOffsetAfter().getTotalSeconds()).append(' ');
    }
  }

  // ---------------------------------------------------------------- running a part of a plan

  private static boolean isNow(Object node) {
    if (!(node instanceof ScalarSubquery)) return false;
    LogicalPlan leaf = (LogicalPlan) ((ScalarSubquery) node).plan();
    while (!leaf.children().isEmpty()) leaf = (LogicalPlan) leaf.children().apply(0);
    return isOurs(leaf) && ((Attribute) leaf.output().apply(0)).metadata().getString(RELATION).equals("penstock.now");
  }

  /** Expressions over a batch of rows, evaluated in this JVM without a Spark job. */
  public static class Projection {
    private final org.apache.spark.sql.classic.SparkSession session;
    private final StructType input;
    private final StructType output;
    private final UnsafeProjection projection;

    Projection(org.apache.spark.sql.classic.SparkSession session, StructType input, StructType output, UnsafeProjection projection) {
      this.session = session;
      this.input = input;
      this.output = output;
      this.projection = projection;
    }

    /** An Arrow record batch message in, the messages of the result out. */
    public List run(final byte[] batch) {
      return (List) session.withActive(new scala.runtime.AbstractFunction0() {
        public Object apply() {
          return messages(batch);
        }
      });
    }

    private List messages(byte[] batch) {
      List one = new ArrayList();
      one.add(batch);
      scala.collection.Iterator rows = org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.fromBatchIterator(
          scala.jdk.javaapi.CollectionConverters.asScala(one.iterator()), input, "UTC", false, true, null);
      // Expressions may ask a nested column for elements that are NULL, which only Spark's own row format answers.
      UnsafeProjection plain = UnsafeProjection.create(input);
      List results = new ArrayList();
      while (rows.hasNext()) {
        InternalRow row = (InternalRow) plain.apply((InternalRow) rows.next());
        results.add(((UnsafeRow) projection.apply(row)).copy());
      }
      scala.collection.Iterator made = (scala.collection.Iterator) org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.toBatchIterator(
          scala.jdk.javaapi.CollectionConverters.asScala(results.iterator()), output, (long) results.size() + 1, "UTC", false, true, null);
      List messages = new ArrayList();
      while (made.hasNext()) messages.add(made.next());
      return messages;
    }
  }

  /**
   * The expressions at some places as functions of input rows. Per expression, pairs holds the place of each part that is an
   * input column and the position of that column: place, position, place, position, ...
   */
  public Projection projection(
      final org.apache.spark.sql.classic.SparkSession session, final List places, final List pairs, final String ddl) {
    return (Projection) session.withActive(new scala.runtime.AbstractFunction0() {
      public Object apply() {
        StructType input = StructType.fromDDL(ddl);
        List references = new ArrayList();
        for (int i = 0; i < input.fields().length; i++) {
          references.add(new BoundReference(i, input.fields()[i].dataType(), true));
        }
        List bound = new ArrayList();
        StructField[] fields = new StructField[places.size()];
        for (int i = 0; i < fields.length; i++) {
          Expression expression = bind(places.get(i), (List) pairs.get(i), references);
          bound.add(expression);
          fields[i] = new StructField("c" + i, expression.dataType(), true, Metadata.empty());
        }
        return new Projection(session, input, new StructType(fields), UnsafeProjection.create(seq(bound)));
      }
    });
  }

  /** An expression with the parts that are columns replaced by references to them. */
  private Expression bind(Object place, List pairs, final List references) {
    final List parts = new ArrayList();
    final List columns = new ArrayList();
    for (int i = 0; i < pairs.size(); i += 2) {
      parts.add(at(((Number) pairs.get(i)).intValue()));
      columns.add(references.get(((Number) pairs.get(i + 1)).intValue()));
    }
    Expression whole = (Expression) at(((Number) place).intValue());
    return (Expression) whole.transformDown(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return place(node, parts) >= 0;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        return isDefinedAt(node) ? columns.get(place(node, parts)) : otherwise.apply(node);
      }
    });
  }

  /** Whether one of the expressions can only be evaluated by a Spark job. */
  public boolean needsJob(List places) {
    for (Object place : places) if (holdsPython((Expression) at(((Number) place).intValue()))) return true;
    return false;
  }

  private static boolean holdsPython(Expression node) {
    if (node instanceof PythonFuncExpression) return true;
    for (Object child : list(node.children())) if (holdsPython((Expression) child)) return true;
    return false;
  }

  /** The same expressions as a Spark job over a relation. The last column of the input is kept. */
  public LogicalPlan projectPlan(List places, List pairs, LogicalPlan input) {
    List columns = new ArrayList();
    List output = list(input.output());
    for (int i = 0; i < places.size(); i++) {
      Expression bound = bind(places.get(i), (List) pairs.get(i), output);
      columns.add(alias(bound, "c" + i, NamedExpression$.MODULE$.newExprId()));
    }
    columns.add(output.get(output.size() - 1));
    return new Project(seq(columns), input);
  }

  private static Alias alias(Expression child, String name, ExprId id) {
    return new Alias(child, name, id, seq(new ArrayList()), scala.Option.empty(), seq(new ArrayList()));
  }

  /**
   * An operator over other inputs, which have the columns of its children in their order; columns beyond those are kept.
   * places are those of the plans that the inputs stand for, if these are not its children; values are one-row relations for its
   * scalar subqueries, micros the tick's time.
   */
  public LogicalPlan graft(LogicalPlan operator, List places, List inputs, List values, final long micros) {
    List children = new ArrayList();
    List old = new ArrayList();
    for (Object place : places) old.add(at(((Number) place).intValue()));
    if (places.isEmpty()) old.addAll(list(operator.children()));
    for (int i = 0; i < old.size(); i++) {
      List output = list(((LogicalPlan) old.get(i)).output());
      LogicalPlan input = (LogicalPlan) inputs.get(i);
      List columns = new ArrayList();
      List given = list(input.output());
      for (int c = 0; c < given.size(); c++) {
        Attribute attribute = (Attribute) given.get(c);
        if (c < output.size()) {
          Attribute wanted = (Attribute) output.get(c);
          // With the metadata of the column, which Spark's physical plan reads.
          columns.add(new Alias(attribute, wanted.name(), wanted.exprId(), seq(new ArrayList()),
              scala.Option.apply(wanted.metadata()), seq(new ArrayList())));
        } else {
          columns.add(attribute);
        }
      }
      children.add(new Project(seq(columns), input));
    }
    final List constants = values;
    final List ids = new ArrayList();
    return (LogicalPlan) replaced(operator, old, children).transformAllExpressions(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof ScalarSubquery;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        if (isNow(node)) return new Literal(Long.valueOf(micros), DataTypes.TimestampType);
        ExprId id = ((ScalarSubquery) node).exprId();
        if (!ids.contains(id)) ids.add(id);
        LocalRelation relation = (LocalRelation) constants.get(ids.indexOf(id));
        DataType type = ((Expression) node).dataType();
        InternalRow row = (InternalRow) relation.data().apply(0);
        return new Literal(row.isNullAt(0) ? null : row.get(0, type), type);
      }
    });
  }

  /** A plan with other plans in the place of some parts. */
  private static LogicalPlan replaced(LogicalPlan plan, List parts, List others) {
    int place = place(plan, parts);
    if (place >= 0) return (LogicalPlan) others.get(place);
    List children = new ArrayList();
    for (Object child : list(plan.children())) children.add(replaced((LogicalPlan) child, parts, others));
    return (LogicalPlan) plan.withNewChildren(seq(children));
  }

  /** The groups of an Aggregate with some of its calls only: keys, then the calls. */
  public LogicalPlan narrowed(LogicalPlan operator, List places) {
    Aggregate aggregate = (Aggregate) operator;
    List columns = new ArrayList();
    int index = 0;
    for (Object key : list(aggregate.groupingExpressions())) {
      columns.add(alias((Expression) key, "k" + index++, NamedExpression$.MODULE$.newExprId()));
    }
    index = 0;
    for (Object place : places) {
      Expression call = (Expression) at(((Number) place).intValue());
      columns.add(alias(call, "c" + index++, NamedExpression$.MODULE$.newExprId()));
    }
    return new Aggregate(aggregate.groupingExpressions(), seq(columns), aggregate.child(), scala.Option.empty());
  }

  // ---------------------------------------------------------------- describing

  /** A plan as JSON: per node its class c, its output o, its children k and the other constructor arguments a. */
  public String describe(final org.apache.spark.sql.classic.SparkSession session, final LogicalPlan plan) {
    return (String) session.withActive(new scala.runtime.AbstractFunction0() {
      public Object apply() {
        StringBuilder out = new StringBuilder();
        met = new ArrayList();
        plan(out, plan);
        return out.toString();
      }
    });
  }

  /** What describe has met so far: the place of a node is its position here. */
  private List met = new ArrayList();

  /** The plan node or expression at a place of the plan that was described last. */
  public Object at(int place) {
    return met.get(place);
  }

  private void plan(StringBuilder out, LogicalPlan plan) {
    out.append("{\"at\":").append(met.size());
    met.add(plan);
    out.append(",\"c\":");
    text(out, plan.getClass().getSimpleName());
    out.append(",\"o\":[");
    boolean ours = isOurs(plan);
    for (int i = 0; i < plan.output().size(); i++) {
      if (i > 0) out.append(',');
      Attribute attribute = (Attribute) plan.output().apply(i);
      out.append('[').append(attribute.exprId().id()).append(',');
      text(out, attribute.name());
      out.append(',');
      text(out, attribute.dataType().catalogString());
      out.append(',').append(attribute.nullable());
      if (ours) {
        out.append(',');
        text(out, attribute.metadata().getString(RELATION));
        out.append(',').append(attribute.metadata().getLong(POSITION));
      }
      out.append(']');
    }
    out.append("],\"k\":[");
    List children = list(plan.children());
    for (int i = 0; i < children.size(); i++) {
      if (i > 0) out.append(',');
      plan(out, (LogicalPlan) children.get(i));
    }
    out.append("],\"a\":");
    if (plan instanceof LocalRelation) rows(out, (LocalRelation) plan);
    else if (plan instanceof LogicalRDD || plan instanceof org.apache.spark.sql.execution.datasources.LogicalRelation) out.append("{}");
    else arguments(out, (scala.Product) plan, children);
    out.append('}');
  }

  private void rows(StringBuilder out, LocalRelation relation) {
    out.append("{\"rows\":[");
    List rows = list(relation.data());
    for (int r = 0; r < rows.size(); r++) {
      out.append(r > 0 ? ",[" : "[");
      InternalRow row = (InternalRow) rows.get(r);
      for (int i = 0; i < relation.output().size(); i++) {
        if (i > 0) out.append(',');
        DataType type = ((Attribute) relation.output().apply(i)).dataType();
        value(out, row.isNullAt(i) ? null : row.get(i, type), type);
      }
      out.append(']');
    }
    out.append("]}");
  }

  private void expression(StringBuilder out, Expression node) {
    out.append("{\"at\":").append(met.size());
    met.add(node);
    out.append(",\"c\":");
    text(out, nameOf(node));
    if (node.resolved()) {
      String type;
      try {
        type = node.dataType().catalogString();
      } catch (Throwable none) {
        type = null; // sort orders, window specifications and the like have no type
      }
      if (type != null) {
        out.append(",\"t\":");
        text(out, type);
        out.append(",\"n\":").append(node.nullable());
      }
    }
    if (!node.deterministic()) out.append(",\"random\":true");
    if (node instanceof Literal) {
      out.append(",\"v\":");
      value(out, ((Literal) node).value(), node.dataType());
      out.append('}');
      return;
    }
    if (node instanceof NamedExpression) {
      out.append(",\"id\":").append(((NamedExpression) node).exprId().id()).append(",\"name\":");
      text(out, ((NamedExpression) node).name());
      if (isSession((NamedExpression) node)) out.append(",\"session\":true");
      if (node instanceof Attribute) {
        out.append('}');
        return;
      }
    }
    List children = called(node) == null ? list(node.children()) : list(((Invoke) node).arguments());
    out.append(",\"k\":[");
    for (int i = 0; i < children.size(); i++) {
      if (i > 0) out.append(',');
      expression(out, (Expression) children.get(i));
    }
    out.append(']');
    if (node instanceof SubqueryExpression) {
      out.append(",\"id\":").append(((SubqueryExpression) node).exprId().id());
      out.append(",\"plan\":");
      plan(out, (LogicalPlan) ((SubqueryExpression) node).plan());
    } else if (node instanceof scala.Product && !(node instanceof Alias)) {
      out.append(",\"a\":");
      arguments(out, called(node) == null ? (scala.Product) node : called(node), children);
      surroundings(out, node);
      jsonSettings(out, node);
      if (makesMap(node)) mapSettings(out);
      if (node instanceof HyperLogLogPlusPlus) registerTables(out, (HyperLogLogPlusPlus) node);
      if (node instanceof SortArray && !((ArrayType) ((SortArray) node).base().dataType()).containsNull()) {
        setting(out, "noNulls");
      }
      if (node instanceof ArrayAggregate && losesNulls((ArrayAggregate) node)) setting(out, "losesNulls");
    }
    out.append(",\"sql\":");
    String sql;
    try {
      sql = node.sql();
    } catch (Throwable none) {
      sql = node.toString();
    }
    text(out, sql.length() > 300 ? sql.substring(0, 300) : sql);
    out.append('}');
  }

  /** Whether a map is made of keys that may be NULL or occur twice: settings of the session say what happens then. */
  private static boolean makesMap(Expression node) {
    return node instanceof CreateMap || node instanceof MapFromArrays || node instanceof MapFromEntries
        || node instanceof MapConcat || node instanceof StringToMap || node instanceof TransformKeys;
  }

  /**
   * Whether an aggregate of an array may be given NULLs inside of a state that is declared without them. Spark writes such a state as if they
   * were not there; fields of structs it reads as they are.
   */
  private static boolean losesNulls(ArrayAggregate aggregate) {
    DataType zero = aggregate.zero().dataType();
    DataType merged = aggregate.merge().dataType();
    if (zero.equals(merged)) return false;
    DataType result = aggregate.dataType();
    boolean nested = result instanceof StructType || result instanceof ArrayType || result instanceof MapType;
    return nested || !sameElements(zero, merged);
  }

  /** Whether arrays and maps inside of two types agree on having NULLs. */
  private static boolean sameElements(DataType one, DataType two) {
    if (one instanceof ArrayType && two instanceof ArrayType) {
      return ((ArrayType) one).containsNull() == ((ArrayType) two).containsNull()
          && sameElements(((ArrayType) one).elementType(), ((ArrayType) two).elementType());
    }
    if (one instanceof MapType && two instanceof MapType) {
      return ((MapType) one).valueContainsNull() == ((MapType) two).valueContainsNull()
          && sameElements(((MapType) one).valueType(), ((MapType) two).valueType());
    }
    if (one instanceof StructType && two instanceof StructType) {
      StructField[] fields = ((StructType) one).fields();
      StructField[] others = ((StructType) two).fields();
      for (int i = 0; i < fields.length; i++) {
        if (!sameElements(fields[i].dataType(), others[i].dataType())) return false;
      }
    }
    return true;
  }

  /** Adds a setting that is true to the arguments that were written last. */
  private static void setting(StringBuilder out, String name) {
    out.setLength(out.length() - 1);
    if (out.charAt(out.length() - 1) != '{') out.append(',');
    text(out, name);
    out.append(":true}");
  }

  /** Adds the settings of makers of maps to the arguments that were written last. */
  private static void mapSettings(StringBuilder out) {
    org.apache.spark.sql.internal.SQLConf conf = org.apache.spark.sql.internal.SQLConf$.MODULE$.get();
    out.setLength(out.length() - 1);
    if (out.charAt(out.length() - 1) != '{') out.append(',');
    out.append("\"mapKeyDedupPolicy\":");
    text(out, conf.getConfString("spark.sql.mapKeyDedupPolicy"));
    out.append('}');
    if (conf.getConfString("spark.sql.legacy.disableMapKeyNormalization").equals("true")) setting(out, "rawKeys");
  }

  /** The name of an expression's class; of a call of a method the name of its class and its own. */
  private static String nameOf(Expression node) {
    if (node instanceof StaticInvoke) {
      String name = ((StaticInvoke) node).objectName();
      return name.substring(name.lastIndexOf('.') + 1) + "." + ((StaticInvoke) node).functionName();
    }
    if (called(node) != null) return called(node).productPrefix() + "." + ((Invoke) node).functionName();
    return node.getClass().getSimpleName();
  }

  /** The evaluator whose method an expression calls, with the options of a function as its fields; null for other expressions. */
  private static scala.Product called(Expression node) {
    if (!(node instanceof Invoke) || !(((Invoke) node).targetObject() instanceof Literal)) return null;
    Object target = ((Literal) ((Invoke) node).targetObject()).value();
    return target instanceof scala.Product ? (scala.Product) target : null;
  }

  /** Adds what JSON depends on beside its options to the arguments that were written last: settings, and how this Java writes doubles. */
  private static void jsonSettings(StringBuilder out, Expression node) {
    boolean json = node instanceof JsonToStructs || node instanceof GetJsonObject || node instanceof JsonTuple || called(node) != null;
    if (!json && !(node instanceof FormatNumber) && !(node instanceof FormatString)) return;
    out.setLength(out.length() - 1);
    if (out.charAt(out.length() - 1) != '{') out.append(',');
    org.apache.spark.sql.internal.SQLConf conf = org.apache.spark.sql.internal.SQLConf$.MODULE$.get();
    out.append("\"java\":").append(Runtime.version().feature());
    String[] settings = {
        "spark.sql.columnNameOfCorruptRecord", "spark.sql.json.enablePartialResults", "spark.sql.legacy.timeParserPolicy",
        "spark.sql.legacy.json.allowEmptyString.enabled", "spark.sql.legacy.json.enableDateTimeParsingFallback",
        "spark.sql.jsonGenerator.ignoreNullFields"};
    for (int i = 0; json && i < settings.length; i++) {
      out.append(',');
      text(out, settings[i].substring(settings[i].lastIndexOf('.') + 1));
      out.append(':');
      String value = conf.getConfString(settings[i]);
      text(out, value == null ? "" : value);
    }
    out.append('}');
  }

  /** Adds the bits that address a register of a sketch, and the tables that correct its estimate, to the arguments that were written last. */
  private static void registerTables(StringBuilder out, HyperLogLogPlusPlus node) {
    org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper$ known = org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper$.MODULE$;
    int precision = 4;
    while ((1 << precision) / known.REGISTERS_PER_WORD() + 1 < node.hllppHelper().numWords()) precision++;
    out.setLength(out.length() - 1);
    out.append(",\"precision\":").append(precision);
    int table = precision - 4;
    if (table < known.RAW_ESTIMATE_DATA().length) {
      out.append(",\"threshold\":\"").append(known.THRESHOLDS()[table]).append('"');
      numbers(out, "estimates", known.RAW_ESTIMATE_DATA()[table]);
      numbers(out, "biases", known.BIAS_DATA()[table]);
    }
    out.append('}');
  }

  private static void numbers(StringBuilder out, String name, double[] values) {
    out.append(",\"").append(name).append("\":\"");
    for (int i = 0; i < values.length; i++) out.append(i > 0 ? " " : "").append(values[i]);
    out.append('"');
  }

  /** Whether Spark's physical plan merges the values when it groups by them. */
  private static boolean isSession(NamedExpression named) {
    return named.metadata().contains(SessionWindow$.MODULE$.marker());
  }

  /** Whether a column of a plan is a session window. */
  public boolean holdsSessions(LogicalPlan plan) {
    for (Object column : list(plan.output())) if (isSession((NamedExpression) column)) return true;
    for (Object child : list(plan.children())) if (holdsSessions((LogicalPlan) child)) return true;
    for (Object child : list(plan.subqueries())) if (holdsSessions((LogicalPlan) child)) return true;
    return false;
  }

  /** What the value of a node depends on beside its arguments: it goes into the arguments that were written last. */
  private static void surroundings(StringBuilder out, Expression node) {
    if (node instanceof TimestampFormatterHelper) {
      String policy = org.apache.spark.sql.internal.SQLConf$.MODULE$.get().legacyTimeParserPolicy().toString();
      out.setLength(out.length() - 1);
      if (!policy.equals("CORRECTED")) out.append(",\"timeParserPolicy\":\"").append(policy).append('"');
      out.append(",\"java\":").append(Runtime.version().feature()).append('}');
    } else if (node instanceof Cast && ((Cast) node).child().resolved() && isFloating(((Cast) node).child().dataType())) {
      out.setLength(out.length() - 1);
      out.append(",\"java\":").append(Runtime.version().feature()).append('}');
    }
  }

  private static boolean isFloating(DataType type) {
    return type.sameType(DataTypes.DoubleType) || type.sameType(DataTypes.FloatType);
  }

  private void arguments(StringBuilder out, scala.Product product, List children) {
    out.append('{');
    boolean first = true;
    for (int i = 0; i < product.productArity(); i++) {
      Object value = product.productElement(i);
      if (isChild(value, children) && value instanceof LogicalPlan) continue;
      if (!first) out.append(',');
      first = false;
      text(out, product.productElementName(i));
      out.append(':');
      if (product instanceof PivotFirst && product.productElementName(i).equals("pivotColumnValues")) {
        pivotValues(out, (PivotFirst) product);
      } else {
        argument(out, value, children, 0);
      }
    }
    out.append('}');
  }

  /** The constants of a PIVOT: {"values": [...]}, which Catalyst has as values without a type. */
  private void pivotValues(StringBuilder out, PivotFirst pivot) {
    out.append("{\"values\":[");
    List values = list(pivot.pivotColumnValues());
    for (int i = 0; i < values.size(); i++) {
      if (i > 0) out.append(',');
      value(out, values.get(i), pivot.pivotColumn().dataType());
    }
    out.append("]}");
  }

  private static boolean isChild(Object value, List children) {
    return place(value, children) >= 0;
  }

  private static int place(Object value, List children) {
    for (int i = 0; i < children.size(); i++) if (children.get(i) == value) return i;
    return -1;
  }

  /** A constructor argument: {"k": i} is the i-th child, {"e": ...} another expression, {"p": name, ...} a case class. */
  private void argument(StringBuilder out, Object value, List children, int depth) {
    if (depth > 12) {
      out.append("null");
    } else if (value instanceof scala.Option) {
      argument(out, ((scala.Option) value).isEmpty() ? null : ((scala.Option) value).get(), children, depth + 1);
    } else if (value == null) {
      out.append("null");
    } else if (value instanceof Expression || value instanceof LogicalPlan) {
      int place = place(value, children);
      if (place >= 0) {
        out.append("{\"k\":").append(place).append('}');
      } else if (value instanceof Expression) {
        out.append("{\"e\":");
        expression(out, (Expression) value);
        out.append('}');
      } else {
        out.append("{\"plan\":");
        plan(out, (LogicalPlan) value);
        out.append('}');
      }
    } else if (value instanceof Boolean || value instanceof Integer || value instanceof Long
        || value instanceof Short || value instanceof Byte) {
      out.append(value);
    } else if (value instanceof scala.collection.Seq) {
      out.append('[');
      List items = list(value);
      for (int i = 0; i < items.size(); i++) {
        if (i > 0) out.append(',');
        argument(out, items.get(i), children, depth + 1);
      }
      out.append(']');
    } else if (value instanceof scala.collection.Map) {
      // The options of a function: name, value, name, value, ...
      java.util.Map options = scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Map) value);
      out.append('[');
      boolean first = true;
      for (Object name : new java.util.TreeSet(options.keySet())) {
        if (!first) out.append(',');
        first = false;
        text(out, name.toString());
        out.append(',');
        text(out, String.valueOf(options.get(name)));
      }
      out.append(']');
    } else if (value instanceof DataType) {
      text(out, ((DataType) value).catalogString());
    } else if (value instanceof ExprId) {
      out.append(((ExprId) value).id());
    } else if (value instanceof scala.Tuple2) {
      out.append('[');
      argument(out, ((scala.Tuple2) value)._1(), children, depth + 1);
      out.append(',');
      argument(out, ((scala.Tuple2) value)._2(), children, depth + 1);
      out.append(']');
    } else if (value instanceof String || value instanceof scala.Enumeration.Value || value instanceof Enum
        || value instanceof Number || value instanceof Character
        || value instanceof org.apache.spark.unsafe.types.UTF8String || value instanceof java.time.ZoneId) {
      text(out, value.toString());
    } else if (value instanceof scala.Product && !(value instanceof scala.collection.Iterable)) {
      scala.Product product = (scala.Product) value;
      out.append("{\"p\":");
      text(out, product.productPrefix());
      for (int i = 0; i < product.productArity(); i++) {
        out.append(',');
        text(out, product.productElementName(i));
        out.append(':');
        argument(out, product.productElement(i), children, depth + 1);
      }
      out.append('}');
    } else {
      out.append("{\"x\":");
      text(out, value.getClass().getName());
      out.append('}');
    }
  }

  /** A value of Catalyst's internal form: exact numbers, text for what JSON cannot carry, lists for nested values. */
  private void value(StringBuilder out, Object value, DataType type) {
    if (value == null) {
      out.append("null");
    } else if (value instanceof byte[]) {
      StringBuilder hex = new StringBuilder();
      byte[] bytes = (byte[]) value;
      for (int i = 0; i < bytes.length; i++) {
        hex.append(Character.forDigit((bytes[i] >> 4) & 15, 16)).append(Character.forDigit(bytes[i] & 15, 16));
      }
      text(out, hex.toString());
    } else if (type instanceof ArrayType) {
      array(out, (ArrayData) value, ((ArrayType) type).elementType());
    } else if (type instanceof MapType) {
      out.append('[');
      array(out, ((MapData) value).keyArray(), ((MapType) type).keyType());
      out.append(',');
      array(out, ((MapData) value).valueArray(), ((MapType) type).valueType());
      out.append(']');
    } else if (type instanceof StructType) {
      out.append('[');
      StructField[] fields = ((StructType) type).fields();
      InternalRow row = (InternalRow) value;
      for (int i = 0; i < fields.length; i++) {
        if (i > 0) out.append(',');
        DataType inner = fields[i].dataType();
        value(out, row.isNullAt(i) ? null : row.get(i, inner), inner);
      }
      out.append(']');
    } else if (value instanceof org.apache.spark.unsafe.types.CalendarInterval) {
      org.apache.spark.unsafe.types.CalendarInterval interval = (org.apache.spark.unsafe.types.CalendarInterval) value;
      out.append('[').append(interval.months).append(',').append(interval.days).append(',')
          .append(interval.microseconds).append(']');
    } else if (value instanceof org.apache.spark.unsafe.types.VariantVal) {
      org.apache.spark.unsafe.types.VariantVal variant = (org.apache.spark.unsafe.types.VariantVal) value;
      out.append('[');
      value(out, variant.getValue(), DataTypes.BinaryType);
      out.append(',');
      value(out, variant.getMetadata(), DataTypes.BinaryType);
      out.append(']');
    } else if (value instanceof Float) {
      text(out, value.toString());
    } else if (value instanceof Double || value instanceof Decimal) {
      text(out, value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal().toPlainString() : value.toString());
    } else if (value instanceof Boolean || value instanceof Number) {
      out.append(value);
    } else {
      text(out, value.toString());
    }
  }

  private void array(StringBuilder out, ArrayData data, DataType type) {
    out.append('[');
    for (int i = 0; i < data.numElements(); i++) {
      if (i > 0) out.append(',');
      value(out, data.isNullAt(i) ? null : data.get(i, type), type);
    }
    out.append(']');
  }

  private static void text(StringBuilder out, String value) {
    out.append('"');
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      if (c == '"' || c == '\\') out.append('\\').append(c);
      else if (c < 32 || c > 126) out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
      else out.append(c);
    }
    out.append('"');
  }
}
