package penstock;

import java.util.ArrayList;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;

/** Relations with columns and without rows. */
public class NoRows {
  /** A relation with these columns; one that streams is planned and never run. */
  public Object relation(SparkSession session, StructType schema, boolean streams) {
    scala.collection.immutable.Seq none =
        scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList()).toList();
    return Dataset.ofRows(
        session, new LocalRelation(DataTypeUtils.toAttributes(schema), none, streams, scala.Option.empty()));
  }
}
