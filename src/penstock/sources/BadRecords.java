package penstock;

import static org.apache.spark.sql.functions.*;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;

/** Columns about records that cannot be read; Python would ask the JVM some two hundred times for them. */
public class BadRecords {
  /** The column `bad`: where a record is and its bytes, when the condition holds. What is not known of `fields` is NULL. */
  public Column column(Column condition, Column raw, Map known, List fields, List types, String bad) {
    Column[] all = new Column[fields.size() + 1];
    for (int at = 0; at < fields.size(); at++) {
      String name = (String) fields.get(at);
      Column value = known.containsKey(name) ? (Column) known.get(name) : lit(null);
      all[at] = value.cast((String) types.get(at)).as(name);
    }
    all[fields.size()] = raw.cast("binary").as("raw");
    return when(condition, struct(all)).as(bad);
  }

  /**
   * The rows whose column `bad` is NULL; another one ends the query, with a message that has the bad record as JSON. Not by `to_json`, for
   * which Spark brings up Scala's reflection: a third of a second before the first row. None of the texts needs an escape: names of topics
   * have none, files are URIs, and bytes are in base64.
   */
  public Dataset refusing(Dataset rows, String bad, String task, String mark, String point, int shown) {
    Column record = col(bad);
    Column bytes = record.getField("raw");
    Column[] parts = new Column[9];
    parts[0] = lit(mark + "{\"point\": \"");
    parts[1] = lit(point);
    parts[2] = lit("\"");
    parts[3] = field("topic", record.getField("topic"), "\"");
    parts[4] = field("partition", record.getField("partition").cast("string"), "");
    parts[5] = field("offset", record.getField("offset").cast("string"), "");
    parts[6] = field("file", record.getField("file"), "\"");
    parts[7] = concat(new Column[] {
        field("bytes", octet_length(bytes).cast("string"), ""),
        field("raw", base64(substring(bytes, 1, shown)), "\"")});
    parts[8] = lit("}\n");
    // Catalyst takes the number of the partition for nondeterministic: it pushes no filter through the check, and does not duplicate the parser.
    Column here = spark_partition_id();
    Column checked = when(record.isNull(), col(task).equalTo(here)).otherwise(raise_error(concat(parts)));
    return rows.withColumn(task, here).filter(checked);
  }

  private static Column field(String name, Column value, String quote) {
    return coalesce(new Column[] {
        concat(new Column[] {lit(", \"" + name + "\": " + quote), value, lit(quote)}), lit("")});
  }
}
