package penstock;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileScanRDD;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/** The order in which the rows of several files come in one batch. */
public class FileOrder implements Comparator {
  /** What a file costs beside its bytes. */
  private static final long OPENING = 4L << 20;

  private static List list(Object seq) {
    return scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Seq) seq);
  }

  /**
   * Let the files of a batch come in the order in which they were written, those of one moment by their paths, and the parts
   * of a file by their place in it. Spark has the largest first, so that the last row of a key would be that of a small file.
   */
  public void arrange(LogicalPlan batch) throws Exception {
    Map known = new IdentityHashMap();
    scans(batch, known);
    for (Object rdd : known.keySet()) {
      if (rdd instanceof FileScanRDD) arrange(list(((FileScanRDD) rdd).filePartitions()));
    }
  }

  private static void scans(LogicalPlan plan, Map known) {
    if (plan instanceof LogicalRDD) scans(((LogicalRDD) plan).rdd(), known);
    for (Object child : list(plan.children())) scans((LogicalPlan) child, known);
  }

  private static void scans(RDD rdd, Map known) {
    if (known.put(rdd, rdd) != null) return;
    for (Object dependency : list(rdd.dependencies())) scans(((Dependency) dependency).rdd(), known);
  }

  /** Share the files out among the same partitions, which the batch may know already, as evenly as their order allows. */
  private void arrange(List partitions) throws Exception {
    List files = new ArrayList();
    long total = 0;
    for (Object partition : partitions) files.addAll(Arrays.asList((Object[]) ((FilePartition) partition).files()));
    List before = new ArrayList(files);
    Collections.sort(files, this);
    if (files.equals(before)) return;
    for (Object file : files) total += ((PartitionedFile) file).length() + OPENING;
    Field field = FilePartition.class.getDeclaredField("files");
    field.setAccessible(true);
    long passed = 0;
    int next = 0;
    for (int number = 0; number < partitions.size(); number++) {
      List share = new ArrayList();
      while (next < files.size() && (passed * partitions.size() < total * (number + 1) || number + 1 == partitions.size())) {
        share.add(files.get(next));
        passed += ((PartitionedFile) files.get(next)).length() + OPENING;
        next++;
      }
      field.set(partitions.get(number), share.toArray(new PartitionedFile[0]));
    }
  }

  public int compare(Object one, Object other) {
    PartitionedFile left = (PartitionedFile) one;
    PartitionedFile right = (PartitionedFile) other;
    int order = Long.compare(left.modificationTime(), right.modificationTime());
    if (order == 0) order = left.filePath().toString().compareTo(right.filePath().toString());
    return order == 0 ? Long.compare(left.start(), right.start()) : order;
  }
}
