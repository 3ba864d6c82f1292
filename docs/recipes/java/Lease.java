import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.ThreadLocalRandom;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CachedData;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.Transcoder;

/** A leased lock by `add` and `cas`, with spymemcached: on latchd and on memcached. Renew it in time. */
public class Lease implements AutoCloseable {
  private static final int LEASED = 0x6c656173; // client flags: docs/PROTOCOL.md, "Leased locks"

  /** A token as the item of a leased lock. */
  private static final Transcoder<String> TOKENS = new Transcoder<>() {
    public boolean asyncDecode(CachedData data) { return false; }
    public CachedData encode(String token) {
      return new CachedData(LEASED, token.getBytes(StandardCharsets.US_ASCII), getMaxSize());
    }
    public String decode(CachedData data) { return new String(data.getData(), StandardCharsets.US_ASCII); }
    public int getMaxSize() { return CachedData.MAX_SIZE; }
  };

  private final MemcachedClient client;
  private final String key;
  private final String token = new BigInteger(128, new SecureRandom()).toString(36);
  private final int ttl;
  private final int exptime;
  private long until;

  /** Waits for the lock, at most `waitMs`. */
  public Lease(MemcachedClient client, String key, int ttl, int waitMs) throws Exception {
    this.client = client;
    this.key = key;
    this.ttl = ttl;
    exptime = (int) Math.ceil(ttl * 1.01) + 1; // the server's clock may be faster
    long end = System.nanoTime() + waitMs * 1_000_000L;
    while (!lasts(() -> client.add(key, exptime, token, TOKENS).get())) {
      if (System.nanoTime() - end >= 0) throw new IllegalStateException(key + " is held");
      Thread.sleep(ThreadLocalRandom.current().nextLong(20, 200));
    }
  }

  /** Whether the holder may rely on the lock. Ask before each step. */
  public boolean held() {
    return System.nanoTime() - until < 0;
  }

  public void renew() throws Exception {
    if (!lasts(() -> cas(exptime))) throw new IllegalStateException(key + " is lost");
  }

  /** Removes the item, only if it is still ours. */
  @Override public void close() throws Exception {
    if (!cas(-1)) throw new IllegalStateException(key + " is lost");
  }

  private boolean cas(int time) {
    var item = client.gets(key, TOKENS);
    return item != null && item.getValue().equals(token)
        && client.cas(key, item.getCas(), time, token, TOKENS) == CASResponse.OK;
  }

  private boolean lasts(Callable<Boolean> request) throws Exception {
    long from = System.nanoTime(); // from the request on, not from the reply
    boolean done = request.call();
    if (done) until = from + ttl * 1_000_000_000L;
    return done;
  }
}
