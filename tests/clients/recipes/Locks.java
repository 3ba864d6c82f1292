import java.net.InetSocketAddress;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import net.spy.memcached.MemcachedClient;

/** docs/recipes/java: called as `java Locks HOST PORT [PID]`, as locks.py. */
public class Locks {
  private static int failed = 0;

  private static void ok(String name, boolean holds, Object... why) {
    System.out.println(holds ? "ok - " + name : "not ok - " + name + ": " + java.util.Arrays.toString(why));
    failed |= holds ? 0 : 1;
  }

  private static void fails(String name, Class<? extends Exception> kind, Callable<?> call) {
    try {
      ok(name, false, call.call());
    } catch (Exception failure) {
      ok(name, kind.isInstance(failure), failure);
    }
  }

  private static void leases(MemcachedClient client) throws Exception {
    client.flush().get();
    try (var lease = new Lease(client, "leased", 10, 0)) {
      fails("lease: a second holder", IllegalStateException.class, () -> new Lease(client, "leased", 10, 0));
      lease.renew();
      ok("lease: held", lease.held());
    }
    ok("lease: released", client.get("leased") == null);
    var lease = new Lease(client, "leased", 10, 0);
    client.set("leased", 0, "another").get();
    fails("lease: lost", IllegalStateException.class, () -> { lease.renew(); return 0; });
    fails("lease: lost, released", IllegalStateException.class, () -> { lease.close(); return 0; });
    ok("lease: the item of another holder stays", client.get("leased").equals("another"));
  }

  private static void locks(String host, int port, long pid) throws Exception {
    var connection = new Latchd(host, port);
    long fence;
    CompletableFuture<Lock> waiter;
    try (var lock = new Lock(host, port, "job", 0)) {
      fence = lock.fence;
      fails("lock: a second holder", Latchd.Held.class, () -> new Lock(host, port, "job", 0));
      waiter = CompletableFuture.supplyAsync(() -> {
        try {
          return new Lock(host, port, "job", 10_000);
        } catch (java.io.IOException failure) {
          throw new java.io.UncheckedIOException(failure);
        }
      });
      ok("lock: fenced write", connection.fencedSet("job", new byte[] {'1'}, fence, 0));
    }
    var second = waiter.get();
    ok("lock: the waiter has it, with a higher fence", Long.compareUnsigned(second.fence, fence) > 0);
    ok("lock: late fenced write", !connection.fencedSet("job", new byte[] {'2'}, fence, 0));
    for (byte made = '0'; made < '2'; made++) {
      var value = new byte[] {made};
      ok("cached: computed once", connection.cached("page", 100, 10, () -> value)[0] == '0');
    }
    fails("cached: an error of the server", java.io.IOException.class,
        () -> connection.cached("k".repeat(251), 100, 10, () -> new byte[0]));
    ok("lock: not lost", !second.lost(1));
    ProcessHandle.of(pid).orElseThrow().destroyForcibly();
    ok("lock: lost", second.lost(10_000));
    fails("lock: released after a loss", java.io.IOException.class, () -> { second.close(); return 0; });
  }

  public static void main(String[] arguments) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
    var port = Integer.parseInt(arguments[1]);
    leases(new MemcachedClient(new InetSocketAddress(arguments[0], port)));
    if (arguments.length > 2) locks(arguments[0], port, Long.parseLong(arguments[2]));
    System.exit(failed);
  }
}
