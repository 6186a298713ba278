package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	clients       = 4         // threads that connect
	acceptors     = 2         // threads that accept
	piece         = 128 << 10 // bytes of one call of a stream
	bindNoPort    = 24        // IP_BIND_ADDRESS_NO_PORT of linux/in.h: the port is chosen when it connects
	firstAttempt  = 20        // milliseconds; a try before policy is in force
	answerTimeout = 10 * 1000 // milliseconds until a connection counts as failed
	oneByte       = "\x01"    // what a server sends
	backlog       = 4096      // of listen(2)
)

func sockaddr(addr string, port int) *syscall.SockaddrInet4 {
	return &syscall.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(addr).As4()}
}

// lane is a workload's server in a bed, and a client's way to it.
type lane struct {
	bed      *bed
	from, to *syscall.SockaddrInet4
	listener int
	sending  atomic.Bool // what a server does with a connection: read all of it, instead of answering
}

// listen opens the server of a workload.
func (b *bed) listen(addr string) (*lane, error) {
	l := &lane{bed: b, from: sockaddr(remoteAddr(0), 0), to: sockaddr(addr, portTCP)}
	if err := b.workload.Do(func() (err error) {
		if l.listener, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(syscall.Bind(l.listener, l.to), syscall.Listen(l.listener, backlog))
	}); err != nil {
		return nil, err
	}
	for range acceptors {
		go l.serve()
	}
	return l, nil
}

// close ends the server: shutdown(2) wakes who accepts.
func (l *lane) close() {
	_ = syscall.Shutdown(l.listener, syscall.SHUT_RDWR)
	_ = syscall.Close(l.listener)
}

func (l *lane) serve() {
	buffer := make([]byte, piece)
	for {
		fd, _, err := syscall.Accept4(l.listener, syscall.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
			continue
		case err != nil:
			return
		}
		for l.sending.Load() {
			if n, err := syscall.Read(fd, buffer); n <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		_, _ = syscall.Write(fd, []byte(oneByte))
		_ = syscall.Close(fd)
	}
}

// connect opens a connection from the calling thread's namespace.
func (l *lane) connect(timeout int) (fd int, err error) {
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	wait := syscall.NsecToTimeval(int64(timeout) * int64(time.Millisecond))
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_IP, bindNoPort, 1),
		syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1}),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &wait),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait),
		syscall.Bind(fd, l.from),
	)
	if err == nil {
		err = uninterrupted(func() error { return syscall.Connect(fd, l.to) }) // again it waits for the same connection
	}
	if err != nil {
		_ = syscall.Close(fd)
	}
	return fd, err
}

// uninterrupted repeats a call that a signal ended, such as those by which Go's scheduler preempts: the kernel does not repeat calls
// on sockets with a time limit.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// exchange is one short connection: opened, one byte back, and reset.
func (l *lane) exchange(timeout int) error {
	fd, err := l.connect(timeout)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return answered(fd)
}

// answered reads the one byte of a server.
func answered(fd int) error {
	return uninterrupted(func() error {
		n, err := syscall.Read(fd, make([]byte, 1))
		if err == nil && n == 0 {
			err = errors.New("closed without an answer")
		}
		return err
	})
}

// opened waits until connections are let in.
func (l *lane) opened(ctx context.Context) error {
	return await(ctx, "the workload is reached", l.bed.died, func() (bool, error) {
		var err error
		if broken := l.bed.client.Do(func() error { err = l.exchange(firstAttempt); return nil }); broken != nil {
			return false, broken
		}
		return err == nil, nil
	})
}

// Load is what a number of connections took.
type Load struct {
	PerSecond float64 // connections
	CPU       float64 // µs of processor for each, of client, kernel and server
	Failed    int     // that were not answered
	Why       error   // of one that failed
}

// connections opens n short ones, from so many threads.
func (l *lane) connections(n, threads int) (Load, error) {
	var wait sync.WaitGroup
	var left, failed atomic.Int64
	left.Store(int64(n))
	errs, why := make([]error, threads), make([]error, threads)
	cpu, began := processor(), time.Now()
	for i := range threads {
		wait.Go(func() {
			errs[i] = l.bed.client.Do(func() error {
				for left.Add(-1) >= 0 {
					if err := l.exchange(answerTimeout); err != nil {
						why[i] = err
						failed.Add(1)
					}
				}
				return nil
			})
		})
	}
	wait.Wait()
	took, used := time.Since(began), processor()-cpu
	return Load{float64(n) / took.Seconds(), float64(used.Nanoseconds()) / float64(n) / 1000, int(failed.Load()), errors.Join(why...)}, errors.Join(errs...)
}

// stream sends so many bytes over one connection, and returns Gb/s until the server has read them all.
func (l *lane) stream(bytes int) (gbps float64, err error) {
	l.sending.Store(true)
	defer l.sending.Store(false)
	err = l.bed.client.Do(func() error {
		fd, err := l.connect(answerTimeout)
		if err != nil {
			return err
		}
		defer syscall.Close(fd)
		buffer, began := make([]byte, piece), time.Now()
		for sent := 0; sent < bytes; {
			n, err := syscall.Write(fd, buffer)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return err
			}
			sent += max(n, 0)
		}
		if err := syscall.Shutdown(fd, syscall.SHUT_WR); err != nil {
			return err
		}
		if err := answered(fd); err != nil { // it has read all
			return fmt.Errorf("a stream: %w", err)
		}
		gbps = float64(bytes) * 8 / 1e9 / time.Since(began).Seconds()
		return nil
	})
	return gbps, err
}

// processor is the processor time of this process, the kernel's for it included: what a packet does on its way through the
// namespaces is done by the thread that sent it.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no other error than a wrong argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// prober sends datagrams until one arrives.
type prober struct{ sender, receiver int }

// probe opens both ends: an address of the client's, and any address of the workloads, at that port.
func (b *bed) probe(from string, port int) (p prober, err error) {
	udp := func(at *syscall.SockaddrInet4, fd *int) func() error {
		return func() (err error) {
			if *fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0); err != nil {
				return err
			}
			if err = syscall.Bind(*fd, at); err != nil {
				_ = syscall.Close(*fd)
			}
			return err
		}
	}
	if err := b.client.Do(udp(sockaddr(from, 0), &p.sender)); err != nil {
		return p, err
	}
	if err := b.workload.Do(udp(sockaddr("0.0.0.0", port), &p.receiver)); err != nil {
		_ = syscall.Close(p.sender)
		return p, err
	}
	return p, nil
}

func (p prober) close() {
	_ = syscall.Close(p.sender)
	_ = syscall.Close(p.receiver)
}

// send sends a datagram with a number to an address; one that cannot be sent yet is lost like any other.
func (p prober) send(to *syscall.SockaddrInet4, n uint32) {
	_ = syscall.Sendto(p.sender, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, 0, to)
}

// received returns the number of a datagram that has arrived.
func (p prober) received() (n uint32, ok bool) {
	var b [4]byte
	size, _, err := syscall.Recvfrom(p.receiver, b[:], 0)
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]), err == nil && size == len(b)
}

// between is the pause between two datagrams. Go's own timers are of whole milliseconds while nothing else happens.
func between() {
	pause := syscall.NsecToTimespec(int64(100 * time.Microsecond))
	_ = syscall.Nanosleep(&pause, nil)
}

// arrival is when the first datagram with that number arrived. Each attempt has a source port of its own if p is new.
func (p prober) arrival(to *syscall.SockaddrInet4, n uint32, limit time.Duration) (time.Time, error) {
	for began := time.Now(); ; {
		p.send(to, n)
		between()
		for {
			got, ok := p.received()
			if !ok {
				break
			}
			if got == n {
				return time.Now(), nil
			}
		}
		if time.Since(began) > limit {
			return time.Time{}, fmt.Errorf("no datagram arrived within %v", limit)
		}
	}
}
