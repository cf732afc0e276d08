package penstock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;

/** Values as texts for people. */
public class Pretty {
  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toList();
  }

  /** The rows of a query with every value as the text that `show` has for it. */
  public Object texts(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan) {
    List columns = new ArrayList();
    for (Object output : scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) plan.output())) {
      Attribute column = (Attribute) output;
      columns.add(new Alias(new ToPrettyString(column, scala.Option.empty()), column.name(), NamedExpression.newExprId(),
          seq(new ArrayList()), scala.Option.empty(), seq(new ArrayList())));
    }
    return org.apache.spark.sql.classic.Dataset.ofRows(session, new Project(seq(columns), plan));
  }
}
