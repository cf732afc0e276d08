package penstock;

import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.api.java.UDF2;

/**
 * The function dynamic_table_check(name, value) over sets that every executor has.
 *
 * A set is a list of parts, the newest first; each has values that it adds and values that it removes, and the first part that says something of
 * a value decides. Values are numbers of 64 bits or texts, under the kind of the set.
 *
 * Compiled in the driver's JVM by Janino, hence the plain dialect: no generics, no lambdas.
 */
public class Membership implements UDF2, Serializable {
  private static final long serialVersionUID = 1L;
  private static final String ANY = "any";
  private static final BigDecimal LEAST = BigDecimal.valueOf(Long.MIN_VALUE);
  private static final BigDecimal MOST = BigDecimal.valueOf(Long.MAX_VALUE);

  /** Values as they travel; the sets are built where they are asked, once per process. */
  public static class Values implements Serializable {
    private static final long serialVersionUID = 1L;
    private final byte[] numbers;
    private final byte[] offsets;
    private final byte[] text;
    private transient volatile long[] slots;
    private transient boolean hasZero;
    private transient HashSet texts;

    Values(byte[] numbers, byte[] offsets, byte[] text) {
      this.numbers = numbers;
      this.offsets = offsets;
      this.text = text;
    }

    private static int place(long number, int mask) {
      long hash = number * 0x9E3779B97F4A7C15L;
      return (int) (hash ^ (hash >>> 32)) & mask;
    }

    private synchronized void build() {
      if (slots != null) {
        return;
      }
      HashSet built = new HashSet();
      ByteBuffer ends = ByteBuffer.wrap(offsets).order(ByteOrder.LITTLE_ENDIAN);
      int start = offsets.length == 0 ? 0 : ends.getInt();
      while (ends.hasRemaining()) {
        int end = ends.getInt();
        built.add(new String(text, start, end - start, StandardCharsets.UTF_8));
        start = end;
      }
      texts = built;
      ByteBuffer all = ByteBuffer.wrap(numbers).order(ByteOrder.LITTLE_ENDIAN);
      int size = 16;
      while (size < numbers.length / 8 * 2) {
        size *= 2;
      }
      long[] table = new long[size];
      while (all.hasRemaining()) {
        long number = all.getLong();
        if (number == 0) {
          hasZero = true;
          continue;
        }
        int at = place(number, size - 1);
        while (table[at] != 0 && table[at] != number) {
          at = (at + 1) & (size - 1);
        }
        table[at] = number;
      }
      slots = table;
    }

    boolean contains(Object value) {
      if (slots == null) {
        build();
      }
      if (!(value instanceof Long)) {
        return texts.contains(value);
      }
      long number = ((Long) value).longValue();
      if (number == 0) {
        return hasZero;
      }
      long[] table = slots;
      int at = place(number, table.length - 1);
      while (table[at] != 0) {
        if (table[at] == number) {
          return true;
        }
        at = (at + 1) & (table.length - 1);
      }
      return false;
    }
  }

  /** What changed in a set. */
  public static class Part implements Serializable {
    private static final long serialVersionUID = 1L;
    final Values added;
    final Values removed;

    Part(Values added, Values removed) {
      this.added = added;
      this.removed = removed;
    }
  }

  /** One set. */
  public static class Table implements Serializable {
    private static final long serialVersionUID = 1L;
    final String name;
    final String kind;
    final Broadcast[] parts;

    Table(String name, String kind, Broadcast[] parts) {
      this.name = name;
      this.kind = kind;
      this.parts = parts;
    }

    boolean contains(Object value) {
      for (int at = 0; at < parts.length; at++) {
        Part part = (Part) parts[at].value();
        if (part.removed.contains(value)) {
          return false;
        }
        if (part.added.contains(value)) {
          return true;
        }
      }
      return false;
    }
  }

  private final HashMap tables = new HashMap();

  public Object values(byte[] numbers, byte[] offsets, byte[] text) {
    return new Values(numbers, offsets, text);
  }

  public Object part(Object added, Object removed) {
    return new Part((Values) added, (Values) removed);
  }

  /** Add a set, with the broadcasts of its parts, the newest first. */
  public void put(String name, String kind, Object[] parts) {
    Broadcast[] broadcasts = new Broadcast[parts.length];
    for (int at = 0; at < parts.length; at++) {
      broadcasts[at] = (Broadcast) parts[at];
    }
    tables.put(name.toLowerCase(Locale.ROOT), new Table(name, kind, broadcasts));
  }

  public Object call(Object name, Object value) {
    Table table = name == null ? null : (Table) tables.get(((String) name));
    if (table == null) {
      table = name == null ? null : (Table) tables.get(((String) name).toLowerCase(Locale.ROOT));
    }
    if (table == null) {
      throw failure("there is no dynamic table '" + name + "'", "DYNAMIC_TABLE_UNKNOWN", "its name is the first argument, as text");
    }
    if (value == null || table.kind.equals(ANY)) {
      return Boolean.FALSE;
    }
    String kind = kindOf(value);
    if (!kind.equals(table.kind)) {
      throw failure(
          "dynamic_table_check('" + table.name + "', value): the value is a " + kind + ", and the table holds values of the kind " + table.kind,
          "DYNAMIC_TABLE_TYPE",
          "cast the value");
    }
    Object canonical = canonical(value);
    return Boolean.valueOf(canonical != null && table.contains(canonical));
  }

  private static String kindOf(Object value) {
    if (value instanceof Number) {
      return "number";
    }
    if (value instanceof String) {
      return "text";
    }
    if (value instanceof Boolean) {
      return "boolean";
    }
    if (value instanceof java.sql.Date || value instanceof LocalDate) {
      return "date";
    }
    if (value instanceof java.sql.Timestamp || value instanceof Instant) {
      return "timestamp";
    }
    if (value instanceof LocalDateTime) {
      return "timestamp_ntz";
    }
    return value instanceof byte[] ? "binary" : "value of another type";
  }

  private static Object canonical(Object value) {
    if (value instanceof Long) {
      return value;
    }
    if (value instanceof Integer || value instanceof Short || value instanceof Byte) {
      return Long.valueOf(((Number) value).longValue());
    }
    if (value instanceof BigDecimal) {
      return number((BigDecimal) value);
    }
    if (value instanceof Number) {
      double number = ((Number) value).doubleValue();
      return Double.isNaN(number) || Double.isInfinite(number) ? null : number(new BigDecimal(number));
    }
    if (value instanceof String) {
      return value;
    }
    if (value instanceof Boolean) {
      return Long.valueOf(((Boolean) value).booleanValue() ? 1L : 0L);
    }
    if (value instanceof java.sql.Date) {
      return Long.valueOf(((java.sql.Date) value).toLocalDate().toEpochDay());
    }
    if (value instanceof LocalDate) {
      return Long.valueOf(((LocalDate) value).toEpochDay());
    }
    if (value instanceof java.sql.Timestamp) {
      return micros(((java.sql.Timestamp) value).toInstant());
    }
    if (value instanceof Instant) {
      return micros((Instant) value);
    }
    if (value instanceof LocalDateTime) {
      return micros(((LocalDateTime) value).toInstant(ZoneOffset.UTC));
    }
    byte[] bytes = (byte[]) value;
    StringBuilder hex = new StringBuilder(bytes.length * 2);
    for (int at = 0; at < bytes.length; at++) {
      hex.append(Character.forDigit((bytes[at] >> 4) & 15, 16)).append(Character.forDigit(bytes[at] & 15, 16));
    }
    return hex.toString();
  }

  private static Object number(BigDecimal value) {
    BigDecimal plain = value.signum() == 0 ? BigDecimal.ZERO : value.stripTrailingZeros();
    if (plain.scale() <= 0 && plain.compareTo(LEAST) >= 0 && plain.compareTo(MOST) <= 0) {
      return Long.valueOf(plain.longValueExact());
    }
    return plain.toPlainString();
  }

  private static Object micros(Instant at) {
    return Long.valueOf(Math.addExact(Math.multiplyExact(at.getEpochSecond(), 1000000L), (long) (at.getNano() / 1000)));
  }

  private static RuntimeException failure(String message, String code, String hint) {
    String parts =
        "{\"kind\": \"DataError\", \"message\": " + quoted(message) + ", \"code\": " + quoted(code) + ", \"hint\": " + quoted(hint) + ", \"where\": null}";
    return new IllegalArgumentException(message + "\npenstock-error:" + parts);
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (int at = 0; at < text.length(); at++) {
      char letter = text.charAt(at);
      if (letter == '"' || letter == '\\') {
        out.append('\\').append(letter);
      } else if (letter < ' ') {
        out.append(' ');
      } else {
        out.append(letter);
      }
    }
    return out.append('"').toString();
  }
}
