package wg

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long the other end may take.
const patience = 10 * time.Second

func (h *Handle) patience() time.Duration { return cmp.Or(h.cfg.Patience, patience) }

// socket is where the process of a device listens.
func (h *Handle) socket(name string) string { return filepath.Join(h.cfg.Dir, name+".sock") }

// Start makes a device by a process, which lives until the device is deleted, also after this one ends. It is down, and has no key. Of one that was
// deleted, the process that this handle began is waited for: until it has ended it holds its port.
func (h *Handle) Start(name string) error {
	if h.cfg.Dir == "" || len(h.cfg.Command) == 0 {
		return fmt.Errorf("device %s: no directory for the socket of its process", name)
	}
	if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.ended[name]; before != nil {
		select {
		case <-before:
		case <-time.After(h.patience()): // it serves a device that is there, or hangs: then this one cannot be made
		}
	}
	started, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer started.Close()
	args := append(append([]string(nil), h.cfg.Command[1:]...), name, h.socket(name))
	cmd := exec.Command(h.cfg.Command[0], args...)
	cmd.ExtraFiles = []*os.File{write}                   // which the process closes when it serves: see [Started]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what stops this process does not stop it
	cmd.Dir = "/"
	err = h.ns.Do(cmd.Start)
	_ = write.Close()
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	ended := make(chan struct{})
	h.ended[name] = ended
	go func() { _ = cmd.Wait(); close(ended) }() // so that no zombie is left
	_ = started.SetReadDeadline(time.Now().Add(h.patience()))
	text, err := io.ReadAll(started)
	if err == nil && strings.TrimSpace(string(text)) != ready {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return fmt.Errorf("device %s: its process did not begin: %w", name, err)
	}
	return nil
}

// ask sends a text to the process of a device, and returns its answer.
func (h *Handle) ask(name, text string) (State, error) {
	if h.cfg.Dir == "" {
		return State{}, fmt.Errorf("device %s: %w", name, ErrNoDevice)
	}
	c, err := net.DialTimeout("unix", h.socket(name), h.patience())
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return State{}, fmt.Errorf("device %s: no process serves it: %w", name, ErrNoDevice)
	} else if err != nil {
		return State{}, fmt.Errorf("device %s: %w", name, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(h.patience()))
	if _, err := io.WriteString(c, text); err != nil {
		return State{}, fmt.Errorf("device %s: %w", name, err)
	}
	s, err := answer(bufio.NewReader(c))
	if err != nil {
		return State{}, fmt.Errorf("device %s: %w", name, err)
	}
	return s, nil
}

func (h *Handle) readProcess(name string) (State, error) { return h.ask(name, "get=1\n\n") }

func (h *Handle) changeProcess(name string, c Change) error {
	_, err := h.ask(name, request(c))
	return err
}
