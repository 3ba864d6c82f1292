# docs/recipes/ruby: called as `ruby locks.rb HOST PORT [PID]`, as locks.py.
require_relative "../../../docs/recipes/ruby/latchd"
require_relative "../../../docs/recipes/ruby/lease"

$failed = 0

def ok(name, holds, why = "")
  puts holds ? "ok - #{name}" : "not ok - #{name}: #{why.inspect}"
  $failed += 1 unless holds
end

def raises(name, kind)
  ok(name, false, yield)
rescue StandardError => e
  ok(name, e.is_a?(kind), e)
end

host, port, pid = ARGV
$stdout.sync = true
Dalli.logger.level = Logger::FATAL
client = Dalli::Client.new("#{host}:#{port}")
client.flush
Lease.hold(client, "leased", ttl: 10) do |lease|
  raises("lease: a second holder", Lease::Held) { Lease.hold(client, "leased") { nil } }
  lease.renew
  ok("lease: held", lease.held?)
end
ok("lease: released", client.get("leased").nil?)
raises("lease: lost", Lease::Lost) do
  Lease.hold(client, "leased", ttl: 10) do |lease|
    client.set("leased", "another", nil, raw: true)
    lease.renew
  end
end
ok("lease: the item of another holder stays", client.get("leased") == "another")

if pid
  server = { host: host, port: port.to_i }
  connection = Latchd::Connection.new(**server)
  waiter = fence = nil
  Latchd.lock("job", **server) do |lock|
    fence = lock.fence
    raises("lock: a second holder", Latchd::Held) { Latchd.lock("job", **server) { nil } }
    waiter = Thread.new { Latchd.lock("job", wait: 10, **server, &:fence) }
    ok("lock: fenced write", connection.fenced_set("job", "1", fence))
  end
  ok("lock: the waiter has it, with a higher fence", waiter.value > fence)
  ok("lock: late fenced write", !connection.fenced_set("job", "2", fence))
  values = %w[0 1].map { |value| connection.cached("page", 100) { value } }
  ok("cached: computed once", values == %w[0 0], values)
  raises("cached: an error of the server", ArgumentError) { connection.cached("k" * 251, 100) { "0" } }
  raises("lock: released after a loss", Latchd::Lost) do
    Latchd.lock("job", **server) do |lock|
      ok("lock: not lost", !lock.lost?)
      Process.kill(:KILL, pid.to_i)
      ok("lock: lost", lock.lost?(wait: 10))
    end
  end
end
exit $failed.zero?
