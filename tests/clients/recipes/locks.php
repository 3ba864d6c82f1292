<?php
// docs/recipes/php: called as `php locks.php HOST PORT [PID]`, as locks.py.
declare(strict_types=1);

use Latchd\{Connection, Held, Lease, LeaseHeld, LeaseLost, Lock, Lost};

require __DIR__ . '/../../../docs/recipes/php/Latchd.php';
require __DIR__ . '/../../../docs/recipes/php/Lease.php';

$failed = 0;
function ok(string $name, bool $holds, mixed $why = ''): void
{
    echo $holds ? "ok - $name\n" : "not ok - $name: " . json_encode($why) . "\n";
    $GLOBALS['failed'] += $holds ? 0 : 1;
}
function throws(string $name, string $kind, callable $call): void
{
    try {
        ok($name, false, $call());
    } catch (\RuntimeException $error) {
        ok($name, $error instanceof $kind, (string) $error);
    }
}

[, $host, $port] = $argv;
$client = new \Memcached();
$client->addServer($host, (int) $port);
$client->flush();
$lease = new Lease($client, 'leased', 10);
throws('lease: a second holder', LeaseHeld::class, fn () => new Lease($client, 'leased'));
$lease->renew();
ok('lease: held', $lease->held());
$lease->release();
ok('lease: released', $client->get('leased') === false);
$lease = new Lease($client, 'leased', 10);
$client->set('leased', 'another');
throws('lease: lost', LeaseLost::class, $lease->renew(...));
throws('lease: lost, released', LeaseLost::class, $lease->release(...));
ok('lease: the item of another holder stays', $client->get('leased') === 'another');

if (isset($argv[3])) {
    $server = "$host:$port";
    $first = new Lock('job', 0, $server);
    throws('lock: a second holder', Held::class, fn () => new Lock('job', 0, $server));
    $connection = new Connection($server);
    ok('lock: fenced write', $connection->fencedSet('job', '1', $first->fence));
    // PHP has no threads, so another process waits.
    $command = [PHP_BINARY, '-r', 'require $argv[1]; echo (new Latchd\Lock("job", 10, $argv[2]))->fence;', '--'];
    $waiter = proc_open([...$command, __DIR__ . '/../../../docs/recipes/php/Latchd.php', $server], [1 => ['pipe', 'w']], $pipes);
    $first->release();
    ok('lock: the waiter has it, with a higher fence', (int) stream_get_contents($pipes[1]) > $first->fence);
    proc_close($waiter);
    ok('lock: late fenced write', !$connection->fencedSet('job', '2', $first->fence));
    $values = [$connection->cached('page', 100, fn () => '0'), $connection->cached('page', 100, fn () => '1')];
    ok('cached: computed once', $values === ['0', '0'], $values);
    throws('cached: an error of the server', \RuntimeException::class, fn () => $connection->cached(str_repeat('k', 251), 9, fn () => '0'));
    $lock = new Lock('job', 5, $server);
    ok('lock: not lost', !$lock->lost());
    posix_kill((int) $argv[3], SIGKILL);
    for ($end = time() + 10; !$lock->lost() && time() < $end; usleep(1000));
    ok('lock: lost', $lock->lost());
    throws('lock: released after a loss', Lost::class, $lock->release(...));
    ok('lock: lost after its release', $lock->lost());
}
exit($failed ? 1 : 0);
