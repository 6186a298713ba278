// Package birdctl reads the state of a BIRD 2 over its control socket.
//
// In: the socket, and BIRD's answers: the text that birdc shows. Out: values. A line that is not
// understood is left out, so that another version of BIRD shows less, and nothing wrong. Times are parsed as birdconf has BIRD
// write them.
package birdctl

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Codes of BIRD's answers.
const (
	greeting  = 1
	firstFail = 8000 // this and all above are errors
)

// answerTimeout bounds an answer; a BIRD with many routes is busy while it reads a configuration.
const answerTimeout = 30 * time.Second

// line is one line of an answer.
type line struct {
	code int
	text string
}

// Configure has BIRD reload its configuration.
func Configure(socket string) error {
	_, err := run(socket, "configure")
	return err
}

// run sends BIRD a command, and returns the lines of its answer. A failure that BIRD reports is an error.
func run(socket, command string) ([]line, error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return nil, fmt.Errorf("write to BIRD: %w", err)
	}
	var out []line
	code := 0
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		text, last := lines.Text(), false
		if n, err := strconv.Atoi(text[:min(4, len(text))]); err == nil && len(text) > 4 && (text[4] == ' ' || text[4] == '-') {
			code, last, text = n, text[4] == ' ', text[5:]
		} else {
			text = strings.TrimPrefix(text, " ") // more of the same
		}
		if code == greeting {
			continue
		}
		if code >= firstFail {
			return nil, fmt.Errorf("BIRD: %s", text)
		}
		if out = append(out, line{code, text}); last {
			return out, nil
		}
	}
	return nil, fmt.Errorf("BIRD did not answer to %q: %w", command, cmp.Or(lines.Err(), net.ErrClosed))
}
