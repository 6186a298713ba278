package wg

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ownKey is the line of an answer in which a process says its public key. The protocol has the private one instead, which stays where it is.
const ownKey = "twill_own_public_key"

// request is the text of a change, as the cross-platform protocol has it (https://www.wireguard.com/xplatform/#configuration-protocol).
func request(c Change) string {
	var b strings.Builder
	line := func(key, value string) { b.WriteString(key + "=" + value + "\n") }
	line("set", "1")
	if c.Private != (Key{}) {
		line("private_key", hex.EncodeToString(c.Private[:]))
	}
	if c.Port != 0 {
		line("listen_port", strconv.Itoa(c.Port))
	}
	if c.Mark != 0 {
		line("fwmark", strconv.FormatUint(uint64(c.Mark), 10))
	}
	for _, k := range c.Remove {
		line("public_key", hex.EncodeToString(k[:]))
		line("remove", "true")
	}
	for _, p := range c.Set {
		line("public_key", hex.EncodeToString(p.Key[:]))
		if p.Host.IsValid() {
			line("endpoint", p.Host.String())
		}
		line("persistent_keepalive_interval", strconv.Itoa(int(p.KeepAlive/time.Second)))
		line("replace_allowed_ips", "true")
		for _, a := range p.Allowed {
			line("allowed_ip", a.String())
		}
	}
	b.WriteString("\n")
	return b.String()
}

// answer reads what a process says about its device, up to the empty line. A line that it does not know is left out.
func answer(r io.Reader) (s State, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() && lines.Text() != "" {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key == "errno" {
			if value != "0" {
				return s, fmt.Errorf("the process answers errno %s", value)
			}
			return s, nil
		}
		if err := s.take(key, value); err != nil {
			return s, fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	return s, io.ErrUnexpectedEOF
}

// take takes a line of an answer.
func (s *State) take(key, value string) (err error) {
	switch key {
	case ownKey:
		s.Public, err = parseHex(value)
		return err
	case "listen_port":
		s.Port, err = strconv.Atoi(value)
		return err
	case "fwmark":
		n, err := strconv.ParseUint(value, 10, 32)
		s.Mark = uint32(n)
		return err
	case "public_key":
		k, err := parseHex(value)
		s.Peers = append(s.Peers, Peer{Key: k})
		return err
	}
	if len(s.Peers) == 0 {
		return nil
	}
	return s.Peers[len(s.Peers)-1].take(key, value)
}

// take takes a line about a peer.
func (p *Peer) take(key, value string) (err error) {
	switch key {
	case "endpoint":
		p.Host, err = netip.ParseAddrPort(value)
	case "allowed_ip":
		var a netip.Prefix
		a, err = netip.ParsePrefix(value)
		p.Allowed = append(p.Allowed, a)
	case "rx_bytes":
		p.Received, err = strconv.ParseInt(value, 10, 64)
	case "tx_bytes":
		p.Sent, err = strconv.ParseInt(value, 10, 64)
	case "persistent_keepalive_interval":
		var n int
		n, err = strconv.Atoi(value)
		p.KeepAlive = time.Duration(n) * time.Second
	case "last_handshake_time_sec":
		var n int64
		if n, err = strconv.ParseInt(value, 10, 64); n != 0 {
			p.Handshake = time.Unix(n, 0)
		}
	}
	return err
}

func parseHex(value string) (k Key, err error) {
	b, err := hex.DecodeString(value)
	if err == nil && len(b) != len(k) {
		err = fmt.Errorf("want %d bytes", len(k))
	}
	if err != nil {
		return Key{}, err
	}
	return Key(b), nil
}
