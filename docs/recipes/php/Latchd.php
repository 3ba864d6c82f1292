<?php
// Locks, fenced writes and cached values on latchd, with PHP's sockets. A leased lock: Lease.php.
declare(strict_types=1);
namespace Latchd;

final class Held extends \RuntimeException {} // by another client, or waiting for it would be a deadlock (`d`)
final class Lost extends \RuntimeException {} // the lock ended before its holder released it

class Connection
{
    protected $stream;

    public function __construct(string $server = '127.0.0.1:11211')
    {
        $this->stream = @stream_socket_client("tcp://$server", $code, $error, 5) ?: throw new \RuntimeException($error);
        $socket = socket_import_stream($this->stream);
        socket_set_option($socket, SOL_SOCKET, SO_KEEPALIVE, 1); // an unreachable server is lost after 10 s
        foreach ([TCP_KEEPIDLE => 5, TCP_KEEPINTVL => 1, TCP_KEEPCNT => 5] as $option => $value) {
            socket_set_option($socket, SOL_TCP, $option, $value);
        }
    }

    /** The words of the reply, and its value, if any. The server may take `$wait` seconds. */
    public function ask(string $line, ?string $body = null, int $wait = 0): array
    {
        stream_set_timeout($this->stream, $wait + 5); // never below `$wait`
        @fwrite($this->stream, "$line\r\n" . ($body === null ? '' : "$body\r\n"));
        $reply = fgets($this->stream);
        if ($reply === false) {
            stream_socket_shutdown($this->stream, STREAM_SHUT_RDWR); // a late reply must not be the next request's
            throw new Lost('the connection has ended');
        }
        $words = explode(' ', rtrim($reply));
        !str_ends_with($words[0], 'ERROR') || throw new \RuntimeException(rtrim($reply));
        return [$words, $words[0] === 'VA' ? substr(stream_get_contents($this->stream, $words[1] + 2), 0, -2) : null];
    }

    /** The value of `$key`: one client computes it, `$early` s before it expires, and the others wait for it. */
    public function cached(string $key, int $ttl, callable $compute, int $early = 10, int $wait = 10): string
    {
        [$words, $value] = $this->ask("mg $key v c N$ttl R$early B w{$wait}000", null, $wait);
        if (!in_array('W', $words, true)) {
            return $value === '' && in_array('Z', $words, true) ? $compute() : $value; // Z: the winner is slow
        }
        [$value, $cas] = [$compute(), current(preg_grep('/^c/', $words))]; // if this client dies, the next one wins
        $this->ask("ms $key " . strlen($value) . ' ' . ucfirst($cas) . " T$ttl", $value); // unless the item has changed
        return $value;
    }

    /** Stores over any connection, only while this grant is in force. */
    public function fencedSet(string $key, string $value, int $fence, int $ttl = 0): bool
    {
        return $this->ask("ms $key " . strlen($value) . " G$fence T$ttl", $value)[0][0] === 'HD';
    }
}

final class Lock extends Connection // the server releases it when this process or its machine dies
{
    public readonly int $fence; // rises with each grant of the key, over restarts too

    public function __construct(private string $key, int $wait = 0, string $server = '127.0.0.1:11211')
    {
        parent::__construct($server);
        [$words] = $this->ask("ml $key F w{$wait}000", null, $wait); // first come, first served
        $words[0] === 'HD' || throw new Held(implode(' ', $words));
        $this->fence = (int) substr($words[1], 1);
    }

    /** Whether the lock has ended. Ask between steps. */
    public function lost(): bool
    {
        [$read, $none] = [[$this->stream], null];
        return stream_select($read, $none, $none, 0) !== 0; // no reply is due, so this is the end
    }

    public function release(): void
    {
        $this->ask("mu $this->key")[0][0] === 'HD' || throw new Lost($this->key);
    }
}
