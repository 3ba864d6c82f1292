# Locks, fenced writes and cached values on latchd, with Ruby's sockets. A leased lock: lease.rb.
require "socket"

module Latchd
  # Another client holds the lock, or waiting for it would be a deadlock (the reply ends with `d`).
  class Held < StandardError; end
  # The lock ended before its holder released it.
  class Lost < StandardError; end

  class Connection
    def initialize(host: "127.0.0.1", port: 11211)
      @socket = Socket.tcp(host, port, connect_timeout: 5)
      @socket.setsockopt(:SOCKET, :KEEPALIVE, true) # an unreachable server is lost after 10 s
      { KEEPIDLE: 5, KEEPINTVL: 1, KEEPCNT: 5, NODELAY: 1 }.each { |name, value| @socket.setsockopt(:TCP, name, value) }
    end

    # The words of the reply, and its value if it has one. The server may take `wait` seconds.
    def ask(line, body = nil, wait: 0)
      @socket.write(body ? "#{line}\r\n#{body}\r\n" : "#{line}\r\n")
      @socket.wait_readable(wait + 5) or raise Lost, "no reply" # never below `wait`
      words = (@socket.gets or raise Lost, "the connection has ended").split
      value = @socket.read(words[1].to_i + 2)[0...-2] if words.first == "VA"
      answered = true
      raise ArgumentError, words.join(" ") if words.first.end_with?("ERROR")
      [words, value]
    rescue IOError, SystemCallError => e
      raise Lost, e.message
    ensure
      close unless answered # also after Timeout.timeout: its reply must not be the next request's
    end

    # The value of `key`: one client computes it, `early` s before it expires, and the others wait for it.
    def cached(key, ttl, early: 10, wait: 10)
      words, value = ask("mg #{key} v c N#{ttl} R#{early} B w#{wait * 1000}", wait: wait)
      if words.include?("W") # this client computes; if it dies, the next one wins
        value = yield
        cas = words.grep(/\Ac/).first.delete_prefix("c")
        ask("ms #{key} #{value.bytesize} C#{cas} T#{ttl}", value) # not stored if the item has changed since
      elsif words.include?("Z") && value.empty? # the winner is slow
        value = yield
      end
      value
    end

    # Stores over any connection, only while this grant is in force.
    def fenced_set(key, value, fence, ttl: 0)
      ask("ms #{key} #{value.bytesize} G#{fence} T#{ttl}", value)[0][0] == "HD"
    end

    def close = @socket.close
  end

  # Latchd.lock("job", wait: 60) { |lock| … }   The server releases it when this process or its machine dies.
  class Lock < Connection
    attr_reader :fence # rises with each grant of the key, over restarts too

    def initialize(key, wait: 0, **server)
      super(**server)
      words, = ask("ml #{key} F w#{(wait * 1000).to_i}", wait: wait) # first come, first served
      raise Held, words.join(" ") unless words.first == "HD"
      @fence = words[1].delete_prefix("F").to_i
    rescue Held, ArgumentError
      close
      raise
    end

    # Whether the lock has ended. Ask between steps, or wait in a thread of its own (`wait: nil`).
    def lost?(wait: 0) = !!@socket.wait_readable(wait) # no reply is due, so this is the end
  end

  def self.lock(key, **options)
    lock = Lock.new(key, **options)
    result = yield lock
    raise Lost, key unless lock.ask("mu #{key}")[0][0] == "HD"
    result
  ensure
    lock&.close
  end
end
