package latchd

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	mathrand "math/rand"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const leased = 0x6c656173 // client flags: docs/PROTOCOL.md, "Leased locks"

// Lease is a leased lock by Add and CompareAndSwap: on latchd and on memcached. Renew it in time.
type Lease struct {
	client *memcache.Client
	item   memcache.Item
	ttl    time.Duration
	until  time.Time
}

// Obtain waits for the lock at most as long as wait.
func Obtain(client *memcache.Client, key string, ttl, wait time.Duration) (*Lease, error) {
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	lease := &Lease{client: client, ttl: ttl, item: memcache.Item{
		Key: key, Value: []byte(base64.RawURLEncoding.EncodeToString(token)), Flags: leased,
		Expiration: int32((ttl+ttl/100+time.Second-1)/time.Second) + 1, // the server's clock may be faster
	}}
	for end := time.Now().Add(wait); ; {
		until := time.Now().Add(ttl) // from the request on, not from the reply
		err := client.Add(&lease.item)
		if err == nil {
			lease.until = until
			return lease, nil
		}
		if !errors.Is(err, memcache.ErrNotStored) {
			return nil, err
		}
		if !time.Now().Before(end) {
			return nil, ErrHeld
		}
		time.Sleep(20*time.Millisecond + time.Duration(mathrand.Int63n(int64(180*time.Millisecond))))
	}
}

// Held tells whether the holder may rely on the lock. Ask before each step.
func (l *Lease) Held() bool { return time.Now().Before(l.until) }

func (l *Lease) Renew() error {
	until := time.Now().Add(l.ttl)
	if err := l.swap(l.item.Expiration); err != nil {
		return err
	}
	l.until = until
	return nil
}

// Release removes the item, only if it is still ours.
func (l *Lease) Release() error { return l.swap(-1) }

func (l *Lease) swap(expiration int32) error {
	item, err := l.client.Get(l.item.Key)
	if errors.Is(err, memcache.ErrCacheMiss) || err == nil && string(item.Value) != string(l.item.Value) {
		return ErrLost
	} else if err != nil {
		return err
	}
	item.Expiration = expiration
	err = l.client.CompareAndSwap(item)
	if errors.Is(err, memcache.ErrCASConflict) || errors.Is(err, memcache.ErrNotStored) || errors.Is(err, memcache.ErrCacheMiss) {
		return ErrLost
	}
	return err
}
