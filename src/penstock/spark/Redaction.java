package penstock;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.rewrite.RewriteAppender;
import org.apache.logging.log4j.core.appender.rewrite.RewritePolicy;
import org.apache.logging.log4j.core.config.AppenderRef;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.impl.Log4jLogEvent;
import org.apache.logging.log4j.message.SimpleMessage;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.deploy.history.EventLogFileWriter;
import org.apache.spark.scheduler.EventLoggingListener;
import scala.Option;

/**
 * Takes secrets out of what Spark writes about its work: its event log, and the log of the JVM.
 *
 * Spark's own redaction knows settings by their names and the text of a plan. It does not know the plan as a tree, nor the errors of
 * tasks, which have literals and fragments of SQL.
 */
public class Redaction {
  private static final String HIDDEN = "***";
  private static final String OURS = "redacted-";

  /** Hide what a regular expression finds from now on. */
  public void install(SparkContext context, String regex) throws Exception {
    Pattern pattern = Pattern.compile(regex);
    Option events = context.eventLogger();
    if (events.isDefined()) inEventLog((EventLoggingListener) events.get(), pattern);
    inLog(pattern);
  }

  private static void inEventLog(EventLoggingListener listener, Pattern pattern) throws Exception {
    EventLogFileWriter writer = listener.logWriter();
    if (writer instanceof Events) {
      ((Events) writer).pattern = pattern;
      return;
    }
    Events redacted = new Events(
        writer,
        (URI) field(writer, "logBaseDir"),
        (SparkConf) field(writer, "sparkConf"),
        (Configuration) field(writer, "hadoopConf"));
    redacted.pattern = pattern;
    Field target = EventLoggingListener.class.getDeclaredField("logWriter");
    target.setAccessible(true);
    target.set(listener, redacted);
  }

  private static Object field(EventLogFileWriter writer, String name) throws Exception {
    Field field = EventLogFileWriter.class.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(writer);
  }

  private static void inLog(Pattern pattern) {
    Object found = LogManager.getContext(false);
    if (!(found instanceof LoggerContext)) return;
    LoggerContext context = (LoggerContext) found;
    LoggerConfig root = context.getConfiguration().getRootLogger();
    List appenders = new ArrayList(root.getAppenders().values());
    for (int each = 0; each < appenders.size(); each++) {
      Appender appender = (Appender) appenders.get(each);
      root.removeAppender(appender.getName());
      // One of ours has the name of the appender behind it.
      String name = appender.getName().startsWith(OURS) ? appender.getName().substring(OURS.length()) : appender.getName();
      AppenderRef[] behind = new AppenderRef[] {AppenderRef.createAppenderRef(name, null, null)};
      RewriteAppender redacted = RewriteAppender.createAppender(
          OURS + name, "true", behind, context.getConfiguration(), new Lines(pattern), null);
      redacted.start();
      root.addAppender(redacted, null, null);
    }
    context.updateLoggers();
  }

  /** The event log, as it may be written. */
  public static class Events extends EventLogFileWriter {
    private final EventLogFileWriter writer;
    public volatile Pattern pattern;

    public Events(EventLogFileWriter writer, URI folder, SparkConf conf, Configuration hadoop) {
      super("redacted", Option.apply(null), folder, conf, hadoop);
      this.writer = writer;
    }

    public void start() {
      writer.start();
    }

    public void writeEvent(String event, boolean flush) {
      writer.writeEvent(pattern.matcher(event).replaceAll(HIDDEN), flush);
    }

    public void stop() {
      writer.stop();
    }

    public String logPath() {
      return writer.logPath();
    }
  }

  /** Lines of the log, as they may be written. */
  public static class Lines implements RewritePolicy {
    private final Pattern pattern;

    public Lines(Pattern pattern) {
      this.pattern = pattern;
    }

    public LogEvent rewrite(LogEvent event) {
      StringWriter text = new StringWriter();
      text.write(event.getMessage().getFormattedMessage());
      if (event.getThrown() != null) {
        text.write("\n");
        event.getThrown().printStackTrace(new PrintWriter(text, true));
      }
      if (!pattern.matcher(text.toString()).find()) return event;
      Log4jLogEvent.Builder safe = new Log4jLogEvent.Builder(event);
      safe.setMessage(new SimpleMessage(pattern.matcher(text.toString()).replaceAll(HIDDEN)));
      safe.setThrown(null);
      safe.setThrownProxy(null);
      return safe.build();
    }
  }
}
