<?php
// A leased lock by `add` and `cas`, with the extension memcached: on latchd and on memcached.
declare(strict_types=1);

namespace Latchd;

/** Another client holds the lock. */
final class LeaseHeld extends \RuntimeException {}
/** The lock ended before its holder released it. */
final class LeaseLost extends \RuntimeException {}

final class Lease
{
    private string $token;
    private int $exptime;
    private float $until;

    public function __construct(private \Memcached $client, private string $key, private int $ttl = 30, float $wait = 0)
    {
        $this->token = bin2hex(random_bytes(16));
        $this->exptime = (int) ceil($ttl * 1.01) + 1; // the server's clock may be faster
        $end = self::now() + $wait;
        while (!$this->lasts(fn () => $client->add($key, $this->token, $this->exptime))) {
            $why = $client->getResultCode();
            $why === \Memcached::RES_NOTSTORED || $why === \Memcached::RES_DATA_EXISTS
                || throw new \RuntimeException($client->getResultMessage());
            self::now() < $end || throw new LeaseHeld($key);
            usleep(random_int(20_000, 200_000));
        }
    }

    /** Whether the holder may rely on the lock. Ask before each step. */
    public function held(): bool
    {
        return self::now() < $this->until;
    }

    public function renew(): void
    {
        $this->lasts(fn () => $this->cas($this->exptime)) || throw new LeaseLost($this->key);
    }

    public function release(): void
    {
        $this->cas(-1) || throw new LeaseLost($this->key); // removes the item, only if it is still ours
    }

    private function cas(int $exptime): bool
    {
        $item = $this->client->get($this->key, null, \Memcached::GET_EXTENDED);
        return $item && $item['value'] === $this->token && $this->client->cas($item['cas'], $this->key, $this->token, $exptime);
    }

    private function lasts(callable $request): bool
    {
        $until = self::now() + $this->ttl; // from the request on, not from the reply
        $done = $request();
        if ($done) {
            $this->until = $until;
        }
        return $done;
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
