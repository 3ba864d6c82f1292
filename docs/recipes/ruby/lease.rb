# A leased lock by `add` and `cas`, with dalli: on latchd and on memcached.
require "dalli"
require "securerandom"

class Lease
  # Another client holds the lock.
  class Held < StandardError; end
  # The lock ended before its holder released it.
  class Lost < StandardError; end

  # Lease.hold(client, "job", ttl: 30, wait: 60) { |lease| … }   The block renews the lease in time.
  def self.hold(client, key, **options)
    lease = new(client, key, **options)
    result = yield lease
    raise Lost, key unless lease.release
    result
  rescue StandardError
    lease&.release
    raise
  end

  def initialize(client, key, ttl: 30, wait: 0)
    @client, @key, @ttl = client, key, ttl
    @exptime = (ttl * 1.01).ceil + 1 # the server's clock may be faster
    @token = SecureRandom.urlsafe_base64(16)
    limit = now + wait
    until lasts? { @client.add(@key, @token, @exptime, raw: true) }
      raise Held, key if now >= limit
      sleep rand(0.02..0.2)
    end
  end

  # Whether the holder may rely on the lock. Ask before each step.
  def held? = now < @until

  def renew
    lasts? { cas { |version| @client.set_cas(@key, @token, version, @exptime, raw: true) } } or raise Lost, @key
  end

  # Removes the item, only if it is still ours.
  def release = cas { |version| @client.delete_cas(@key, version) }

  private

  def cas
    value, version = @client.get_cas(@key)
    value == @token && yield(version)
  end

  def lasts?
    ends = now + @ttl # from the request on, not from the reply
    done = yield
    @until = ends if done
    done
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
