import java.io.IOException;

/** try (var lock = new Lock("127.0.0.1", 11211, "job", 60_000)) { … }   Released when this process or machine dies. */
public class Lock implements AutoCloseable {
  /** Rises with each grant of the key, over restarts too. */
  public final long fence;
  private final Latchd server;
  private final String key;

  /** Waits for the lock, at most `waitMs`: first come, first served. */
  public Lock(String host, int port, String key, int waitMs) throws IOException {
    this.key = key;
    server = new Latchd(host, port);
    try {
      var words = server.ask(waitMs, "ml %s F w%d".formatted(key, waitMs)).words();
      if (!words.get(0).equals("HD")) throw new Latchd.Held(String.join(" ", words));
      fence = Long.parseUnsignedLong(words.get(1).substring(1));
    } catch (IOException failure) {
      server.close();
      throw failure;
    }
  }

  /** Waits up to `waitMs`, at least 1, for the end of the lock. Meanwhile, `close` waits. Ask between steps. */
  public boolean lost(int waitMs) {
    return server.ended(waitMs);
  }

  @Override public void close() throws IOException {
    try (server) {
      if (!server.ask(0, "mu " + key).words().get(0).equals("HD")) throw new Latchd.Lost(key);
    }
  }
}
