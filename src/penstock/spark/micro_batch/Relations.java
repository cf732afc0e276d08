package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ViewHelper;

/** Plans that queries of a session see by a name, for as long as they are planned. */
public class Relations {
  /** Give plans names, as `createOrReplaceTempView` does, which runs a command of Spark's for each. */
  public void put(SparkSession session, List names, List plans) {
    SessionCatalog catalog = session.sessionState().catalog();
    scala.collection.immutable.Seq none =
        scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList()).toList();
    scala.Function1 before = new scala.runtime.AbstractFunction1() {
      public Object apply(Object name) {
        return scala.Option.empty();
      }
    };
    for (int at = 0; at < names.size(); at++) {
      String name = (String) names.get(at);
      LogicalPlan plan = (LogicalPlan) plans.get(at);
      catalog.createTempView(name, ViewHelper.createTemporaryViewRelation(
          new TableIdentifier(name), session, true, before, scala.Option.empty(), plan, plan, none, scala.Option.empty()), true);
    }
  }

  /** Take the names away; not as `spark.catalog` does it, which would let Spark forget what is persisted of the plans, too. */
  public void drop(SparkSession session, List names) {
    for (Object name : names) session.sessionState().catalog().dropTempView((String) name);
  }

  /**
   * A query over plans by their names. Its own plan is the analyzed one: Spark looks for what is observed in a relation in the plan as it
   * was given, where a name hides it.
   */
  public Object query(SparkSession session, String text, List names, List plans) {
    LogicalPlan analyzed;
    try {
      put(session, names, plans);
      analyzed = ((Dataset) session.sql(text)).queryExecution().analyzed();
    } finally {
      drop(session, names);
    }
    return Dataset.ofRows(session, analyzed);
  }
}
