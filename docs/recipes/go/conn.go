// Package latchd has locks, fenced writes and cached values on latchd, with the standard library. Locks and fenced
// writes: lock.go. A leased lock: lease.go.
package latchd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"time"
)

// Conn is a connection for one request at a time. Close it after an error.
type Conn struct {
	*textproto.Conn
	tcp net.Conn
}

func Dial(address string) (*Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second, KeepAlive: time.Second} // an unreachable server is lost after 10 s
	tcp, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Conn{textproto.NewConn(tcp), tcp}, nil
}

// Ask returns the words of the reply, and its value if it has one. The server may take wait.
func (c *Conn) Ask(wait time.Duration, request string) (words []string, value []byte, err error) {
	c.tcp.SetDeadline(time.Now().Add(wait + 5*time.Second)) // never below wait
	if _, err = io.WriteString(c.tcp, request+"\r\n"); err != nil {
		return nil, nil, err
	}
	line, err := c.ReadLine()
	words = strings.Fields(line)
	if err == nil && (len(words) == 0 || strings.HasSuffix(words[0], "ERROR")) {
		return nil, nil, errors.New(line)
	}
	size := 0
	if _, none := fmt.Sscanf(line, "VA %d", &size); none == nil {
		value = make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(c.R, value)
		value = value[:size]
	}
	return words, value, err
}

// Cached returns the value of key. One client computes it, early seconds before it expires; the others wait for it.
func (c *Conn) Cached(key string, ttl, early int, compute func() ([]byte, error)) ([]byte, error) {
	const wait = 10 * time.Second
	words, value, err := c.Ask(wait, fmt.Sprintf("mg %s v c N%d R%d B w%d", key, ttl, early, wait.Milliseconds()))
	if err != nil {
		return nil, err
	}
	won, cas := false, ""
	for _, word := range words[1:] {
		switch word[0] {
		case 'W':
			won = true
		case 'Z':
			if len(value) == 0 { // the winner is slow
				return compute()
			}
		case 'c':
			cas = word[1:]
		}
	}
	if !won {
		return value, nil
	}
	if value, err = compute(); err != nil { // the next client wins when this connection is closed
		return nil, err
	}
	_, _, err = c.Ask(0, fmt.Sprintf("ms %s %d C%s T%d\r\n%s", key, len(value), cas, ttl, value)) // unless it has changed
	return value, err
}
