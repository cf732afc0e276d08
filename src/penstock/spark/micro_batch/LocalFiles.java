package penstock;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, which start `chmod` for every new one where Hadoop's native code is missing. */
public class LocalFiles {
  /** The same without a process. */
  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {
        super.setPermission(path, permission);
      } else {
        Files.setPosixFilePermissions(
            pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
      }
    }
  }

  /** Let the local files of this JVM do without, unless somebody has chosen others; return whether they do. */
  public boolean install(Configuration conf) throws Exception {
    FileSystem files = FileSystem.get(URI.create("file:///"), conf);
    if (!(files instanceof LocalFileSystem)) return false;
    Class kind = ((LocalFileSystem) files).getRaw().getClass();
    if (kind == RawLocalFileSystem.class) {
      Raw raw = new Raw();
      raw.initialize(URI.create("file:///"), conf);
      Field inner = FilterFileSystem.class.getDeclaredField("fs");
      inner.setAccessible(true);
      inner.set(files, raw);
      return true;
    }
    return kind == Raw.class;
  }
}
