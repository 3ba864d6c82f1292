import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.*;
import jdk.net.ExtendedSocketOptions;

/** Locks, fenced writes and cached values on latchd, with the standard library. A leased lock: Lease.java. */
public class Latchd implements Closeable {
  /** Another client holds the lock, or waiting for it would be a deadlock (the reply ends with `d`). */
  public static class Held extends IOException { Held(String reply) { super(reply); } }
  /** The lock ended before its holder released it. */
  public static class Lost extends IOException { Lost(String why) { super(why); } }
  public record Reply(List<String> words, byte[] value) {}

  private final Socket socket = new Socket();
  private final BufferedInputStream input;

  public Latchd(String host, int port) throws IOException {
    socket.connect(new InetSocketAddress(host, port), 5000);
    socket.setTcpNoDelay(true);
    socket.setKeepAlive(true); // an unreachable server is lost after 10 s
    socket.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, 5);
    socket.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, 1);
    socket.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, 5);
    input = new BufferedInputStream(socket.getInputStream());
  }

  /** Sends a request, and the value of an `ms`. The server may take `waitMs`. Close the connection after an error. */
  public synchronized Reply ask(int waitMs, String line, byte... value) throws IOException {
    socket.setSoTimeout(waitMs + 5000); // never below `waitMs`
    var request = new ByteArrayOutputStream();
    request.writeBytes((line + "\r\n").getBytes(StandardCharsets.UTF_8));
    request.writeBytes(value);
    if (line.startsWith("ms ")) request.writeBytes(new byte[] {'\r', '\n'});
    socket.getOutputStream().write(request.toByteArray());
    var reply = new StringBuilder();
    for (int letter; (letter = input.read()) != '\n'; reply.append((char) letter)) {
      if (letter < 0) throw new Lost("the connection has ended");
    }
    var words = List.of(reply.toString().trim().split(" "));
    if (words.get(0).endsWith("ERROR")) throw new IOException(String.join(" ", words));
    if (!words.get(0).equals("VA")) return new Reply(words, new byte[0]);
    var found = input.readNBytes(Integer.parseInt(words.get(1)));
    input.skipNBytes(2);
    return new Reply(words, found);
  }

  /** The value of `key`: one client computes it, `early` s before it expires, and the others wait for it. */
  public byte[] cached(String key, int ttl, int early, Callable<byte[]> compute) throws Exception {
    var reply = ask(10_000, "mg %s v c N%d R%d B w10000".formatted(key, ttl, early));
    var words = reply.words();
    if (!words.contains("W")) {
      return words.contains("Z") && reply.value().length == 0 ? compute.call() : reply.value(); // Z: the winner is slow
    }
    var value = compute.call(); // if this client dies, the next one wins
    var cas = words.stream().filter(word -> word.startsWith("c")).findFirst().orElseThrow().substring(1);
    ask(0, "ms %s %d C%s T%d".formatted(key, value.length, cas, ttl), value); // not stored if the item has changed since
    return value;
  }

  /** Stores over any connection, only while this grant is in force. */
  public boolean fencedSet(String key, byte[] value, long fence, int ttl) throws IOException {
    return ask(0, "ms %s %d G%d T%d".formatted(key, value.length, fence, ttl), value).words().get(0).equals("HD");
  }

  /** Whether the connection ends within `waitMs`, at least 1. */
  synchronized boolean ended(int waitMs) {
    try {
      socket.setSoTimeout(waitMs);
      input.read(); // no reply is due, so this is the end
      return true;
    } catch (IOException end) {
      return !(end instanceof SocketTimeoutException);
    }
  }

  @Override public void close() throws IOException { socket.close(); }
}
