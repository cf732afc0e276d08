package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.ContentScanTask;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * What differs between two snapshots of an Iceberg table: the data files, each with the deletes that apply to it, that one has and the other has not.
 * Reading those of the newer one, and taking away the rows of those of the older one, is exact whatever wrote them.
 *
 * Compiled in the driver's JVM by Janino, hence the plain dialect: no generics, no lambdas.
 */
public class TableChanges {

  private List came = new ArrayList();
  private List went = new ArrayList();

  /** Find the files that came between two snapshots and those that went. Without `from` all files came, without `to` all went. */
  public void compare(Table table, Long from, Long to) throws java.io.IOException {
    Map counts = new HashMap();
    Map tasks = new HashMap();
    for (Iterator pairs = steps(table, from, to).iterator(); pairs.hasNext(); ) {
      Long[] pair = (Long[]) pairs.next();
      if (pair[0] != null) count(table, pair[0].longValue(), -1, counts, tasks);
      if (pair[1] != null) count(table, pair[1].longValue(), 1, counts, tasks);
    }
    for (Iterator entries = counts.entrySet().iterator(); entries.hasNext(); ) {
      Map.Entry entry = (Map.Entry) entries.next();
      int times = ((Integer) entry.getValue()).intValue();
      for (int i = 0; i < times; i++) came.add(tasks.get(entry.getKey()));
      for (int i = 0; i < -times; i++) went.add(tasks.get(entry.getKey()));
    }
  }

  /** Where the files lie that came, or went, a line each: an empty one for a file that is not Parquet, is encrypted, or has deletes. */
  public String plain(boolean isComing) {
    StringBuilder lines = new StringBuilder();
    for (Iterator each = (isComing ? came : went).iterator(); each.hasNext(); ) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) ((ContentScanTask) task).file();
      String location = file.location();
      boolean isPlain = file.format() == FileFormat.PARQUET && file.keyMetadata() == null
          && task.deletes().isEmpty() && location.indexOf('\n') < 0;
      if (isPlain) lines.append(location);
      lines.append('\n');
    }
    return lines.toString();
  }

  /** Stage the files that came, or went, but for those at some positions, under the name `set`; returns how many they are. */
  public int stage(Table table, boolean isComing, List without, String set) {
    List files = isComing ? came : went;
    Set others = new HashSet(without);
    List staged = new ArrayList();
    for (int i = 0; i < files.size(); i++) if (!others.contains(Integer.valueOf(i))) staged.add(files.get(i));
    if (!staged.isEmpty()) ScanTaskSetManager.get().stageTasks(table, set, staged);
    return staged.size();
  }

  /** The pairs of snapshots whose differences make up that of two: snapshots that only rewrote files lie between the pairs. */
  private static List steps(Table table, Long from, Long to) {
    List direct = new ArrayList();
    direct.add(new Long[] {from, to});
    if (from == null || to == null) return direct;
    List pairs = new ArrayList();
    long end = to.longValue();
    Snapshot at = table.snapshot(end);
    while (at != null && at.snapshotId() != from.longValue()) {
      Long parent = at.parentId();
      if (parent == null) return direct;
      if ("replace".equals(at.operation())) {
        if (end != at.snapshotId()) pairs.add(new Long[] {Long.valueOf(at.snapshotId()), Long.valueOf(end)});
        end = parent.longValue();
      }
      at = table.snapshot(parent.longValue());
    }
    if (at == null) return direct;
    if (end != from.longValue()) pairs.add(new Long[] {from, Long.valueOf(end)});
    return pairs;
  }

  private static void count(Table table, long snapshot, int by, Map counts, Map tasks) throws java.io.IOException {
    CloseableIterable planned = table.newScan().useSnapshot(snapshot).planFiles();
    try {
      for (Iterator each = planned.iterator(); each.hasNext(); ) {
        FileScanTask task = (FileScanTask) each.next();
        String key = key(task);
        Integer before = (Integer) counts.get(key);
        int now = (before == null ? 0 : before.intValue()) + by;
        if (now == 0) counts.remove(key);
        else counts.put(key, Integer.valueOf(now));
        tasks.put(key, task);
      }
    } finally {
      planned.close();
    }
  }

  private static String key(FileScanTask task) {
    List deletes = new ArrayList();
    for (Iterator each = task.deletes().iterator(); each.hasNext(); ) {
      DeleteFile file = (DeleteFile) each.next();
      deletes.add(file.location() + "@" + file.contentOffset());
    }
    Collections.sort(deletes);
    return ((DataFile) ((ContentScanTask) task).file()).location() + deletes;
  }

  /** The rows of staged files, in the columns that the table has now. */
  public Object frame(org.apache.spark.sql.classic.SparkSession session, Table table, String set) {
    DataSourceV2Relation relation = DataSourceV2Relation.create(
        new SparkRewriteTable(table, set), scala.Option.empty(), scala.Option.empty());
    return org.apache.spark.sql.classic.Dataset.ofRows(session, relation);
  }

  /** Forget what was staged. */
  public void forget(Table table, String set) {
    ScanTaskSetManager.get().removeTasks(table, set);
  }
}
