package latchd

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	ErrHeld = errors.New("another client holds the lock, or waiting would be a deadlock")
	ErrLost = errors.New("the lock ended before its holder released it")
)

// Lock is released by the server when this process or its machine dies.
//
//	lock, err := latchd.Acquire("127.0.0.1:11211", "job", time.Minute)
//	if err == nil { defer lock.Release() … }
type Lock struct {
	Fence uint64          // rises with each grant of the key, over restarts too
	Lost  <-chan struct{} // closed when the lock has ended
	conn  *Conn
	key   string
}

// Acquire waits for the lock at most as long as wait: first come, first served.
func Acquire(address, key string, wait time.Duration) (*Lock, error) {
	conn, err := Dial(address)
	if err != nil {
		return nil, err
	}
	lost := make(chan struct{})
	lock := &Lock{Lost: lost, conn: conn, key: key}
	words, _, err := conn.Ask(wait, fmt.Sprintf("ml %s F w%d", key, wait.Milliseconds()))
	if err == nil {
		if _, other := fmt.Sscanf(strings.Join(words, " "), "HD F%d", &lock.Fence); other != nil {
			err = fmt.Errorf("%w: %s", ErrHeld, words)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.tcp.SetDeadline(time.Time{})
	go func() {
		conn.R.Peek(1) // no reply is due, so this is the end
		close(lost)
	}()
	return lock, nil
}

func (l *Lock) Release() error {
	defer l.conn.Close()
	l.conn.tcp.SetReadDeadline(time.Unix(1, 0)) // ends the watch
	<-l.Lost
	words, _, err := l.conn.Ask(0, "mu "+l.key)
	if err != nil || words[0] != "HD" {
		return fmt.Errorf("%w: %s %v", ErrLost, words, err)
	}
	return nil
}

// FencedSet stores over any connection, only while this grant is in force.
func (c *Conn) FencedSet(key string, value []byte, fence uint64, ttl int) (bool, error) {
	words, _, err := c.Ask(0, fmt.Sprintf("ms %s %d G%d T%d\r\n%s", key, len(value), fence, ttl, value))
	return err == nil && words[0] == "HD", err
}
