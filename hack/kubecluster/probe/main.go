// Command probe is what pods of test clusters run; without arguments it waits, as a pod's sandbox does.
//
//	probe                          wait
//	probe serve                    answer HTTP and UDP at port 8080, with the name of the pod
//	probe get http://HOST:PORT     print what is answered; exit code 1 if nothing is within 3s, or as long as another argument says
//	probe ping ADDRESS             one echo, and its answer
//	probe stream HOST:PORT         send a number by UDP each 10 ms until standard input ends; print "begun", and how many were sent and not answered
package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

const patience = 3 * time.Second

func main() {
	args := slices.Concat(os.Args[1:], []string{"", ""})
	var err error
	switch args[0] {
	case "":
		wait()
	case "serve":
		err = serve()
	case "get":
		err = get(args[1], args[2])
	case "ping":
		err = ping(args[1])
	case "stream":
		err = stream(args[1])
	default:
		err = fmt.Errorf("%q: unknown", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// wait does what the first process of a sandbox has to do: it reaps children whose parents have ended, until it gets a signal to end.
func wait() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range ended {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := udp.ReadFrom(b)
			if err == nil {
				_, _ = udp.WriteTo(b[:n], from) // who asked sees that nothing comes
			}
		}
	}()
	s := &http.Server{Addr: ":8080", ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s to %s\n", host, r.RemoteAddr)
	})}
	return s.ListenAndServe()
}

func get(url, within string) error {
	d, err := time.ParseDuration(cmp.Or(within, patience.String()))
	if err != nil {
		return err
	}
	c := http.Client{Timeout: d, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

// ping sends one ICMP echo request (RFC 792) by a raw socket.
func ping(address string) error {
	to, err := net.ResolveIPAddr("ip4", address)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("ip4:icmp", "")
	if err != nil {
		return err
	}
	defer conn.Close()
	request := []byte{8, 0, 0, 0, 0x54, 0x57, 0, 1}
	var sum uint32
	for i := 0; i < len(request); i += 2 {
		sum += uint32(request[i])<<8 | uint32(request[i+1])
	}
	sum = sum>>16 + sum&0xffff
	request[2], request[3] = byte(^sum>>8), byte(^sum)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(request, to); err != nil {
		return err
	}
	b := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(b) // without the header of IP
		if err != nil {
			return err
		}
		if n >= 8 && b[0] == 0 && b[4] == request[4] && b[5] == request[5] && from.String() == to.String() {
			fmt.Println("answered by", address)
			return nil
		}
	}
}

// stream sends a number each 10 ms, and at the end of its input waits for the last answers.
func stream(to string) error {
	conn, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	var ended chan struct{} // from when some were sent
	answered := make(chan int, 1024)
	go receive(conn, answered)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	sent, missing := 0, map[int]bool{}
	for {
		if sent == 3 && ended == nil {
			fmt.Println("begun")
			ended = input()
		}
		select {
		case <-tick.C:
			missing[sent] = true
			if _, err := fmt.Fprint(conn, sent); err != nil {
				fmt.Println("send", sent, err)
			}
			sent++
		case n := <-answered:
			delete(missing, n)
		case <-ended:
			last(answered, missing)
			fmt.Printf("sent %d, lost %d\n", sent, len(missing))
			return nil
		}
	}
}

// input is closed when standard input ends, in whatever way.
func input() chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// last waits for the answers that are on their way.
func last(answered <-chan int, missing map[int]bool) {
	end := time.After(patience)
	for len(missing) > 0 {
		select {
		case n := <-answered:
			delete(missing, n)
		case <-end:
			return
		}
	}
}

func receive(conn net.Conn, answered chan<- int) {
	b := make([]byte, 64)
	for {
		n, err := conn.Read(b)
		if err != nil {
			continue // ICMP's refusals come as errors
		}
		var number int
		if _, err := fmt.Sscan(string(b[:n]), &number); err == nil {
			answered <- number
		}
	}
}
