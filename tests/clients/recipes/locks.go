// Calls docs/recipes/go: `locks HOST PORT [PID]`, as locks.py.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"latchd"
)

var failed = 0

func ok(name string, holds bool, why ...any) {
	if holds {
		fmt.Println("ok - " + name)
	} else {
		fmt.Println("not ok - "+name+":", why)
		failed = 1
	}
}

func leases(client *memcache.Client) {
	client.Delete("leased")
	lease, err := latchd.Obtain(client, "leased", 10*time.Second, 0)
	ok("lease: obtained", err == nil, err)
	_, err = latchd.Obtain(client, "leased", 10*time.Second, 0)
	ok("lease: a second holder", errors.Is(err, latchd.ErrHeld), err)
	ok("lease: renewed and held", lease.Renew() == nil && lease.Held())
	ok("lease: released", lease.Release() == nil)
	lease, err = latchd.Obtain(client, "leased", 10*time.Second, 0)
	ok("lease: obtained again", err == nil, err)
	client.Set(&memcache.Item{Key: "leased", Value: []byte("another")})
	ok("lease: lost", errors.Is(lease.Renew(), latchd.ErrLost) && errors.Is(lease.Release(), latchd.ErrLost))
	item, err := client.Get("leased")
	ok("lease: the item of another holder stays", err == nil && string(item.Value) == "another", err)
}

func locks(address string, pid int) {
	first, err := latchd.Acquire(address, "job", 0)
	ok("lock: acquired", err == nil, err)
	_, err = latchd.Acquire(address, "job", 0)
	ok("lock: a second holder", errors.Is(err, latchd.ErrHeld), err)
	waited := make(chan *latchd.Lock)
	go func() {
		second, _ := latchd.Acquire(address, "job", 10*time.Second)
		waited <- second
	}()
	conn, err := latchd.Dial(address)
	ok("conn: dialled", err == nil, err)
	done, err := conn.FencedSet("job", []byte("1"), first.Fence, 0)
	ok("lock: fenced write", done, err)
	ok("lock: released", first.Release() == nil)
	second := <-waited
	ok("lock: the waiter has it, with a higher fence", second != nil && second.Fence > first.Fence)
	done, err = conn.FencedSet("job", []byte("2"), first.Fence, 0)
	ok("lock: late fenced write", !done && err == nil, err)
	for _, made := range []string{"0", "1"} {
		value, err := conn.Cached("page", 100, 10, func() ([]byte, error) { return []byte(made), nil })
		ok("cached: computed once", err == nil && string(value) == "0", string(value), err)
	}
	_, err = conn.Cached(strings.Repeat("k", 251), 100, 10, func() ([]byte, error) { return nil, nil })
	ok("cached: an error of the server", err != nil && strings.Contains(err.Error(), "ERROR"), err)
	syscall.Kill(pid, syscall.SIGKILL)
	select {
	case <-second.Lost:
		ok("lock: lost", errors.Is(second.Release(), latchd.ErrLost))
	case <-time.After(10 * time.Second):
		ok("lock: lost", false, "no signal")
	}
}

func main() {
	address := os.Args[1] + ":" + os.Args[2]
	client := memcache.New(address)
	client.Timeout = 10 * time.Second
	leases(client)
	if len(os.Args) > 3 {
		pid, _ := strconv.Atoi(os.Args[3])
		locks(address, pid)
	}
	os.Exit(failed)
}
