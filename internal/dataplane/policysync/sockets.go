package policysync

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Names below the directory, upstream's but for staging: a file NAME.json for each workload that is to have a socket, and where that is.
const (
	credentialsDir = "creds"
	mountDir       = "mount"
	socketName     = "socket"
	stagingDir     = "policysync" // where sockets are made, out of reach of workloads
	suffix         = ".json"
)

// Bounds of what is read of others.
const (
	maxCredentials = 16 << 10 // bytes
	maxSockets     = 2000
	rereadEvery    = 20 // looks at the directory: then also what did not seem to change is read
)

// credentialsFile says whose socket it is, as upstream's drivers for volumes write it. The last two are this project's own, for workloads that are not Kubernetes'.
type credentialsFile struct {
	Workload, Namespace    string
	Orchestrator, Endpoint string // empty: k8s, and eth0
}

// sockets are those of the workloads below one directory. One goroutine may use it.
type sockets struct {
	*Server
	prefix string
	root   *os.Root // nil: it is not there
	served map[string]*served
	seen   time.Time // when the directory of files had last changed
	looks  int
	waits  bool              // something is to be tried again
	logged map[string]string // what was logged, by what it is of
	number int               // of the next socket
}

// served is a socket.
type served struct {
	text   string // of its file
	of     workload
	server *grpc.Server
	is     fs.FileInfo // the socket itself
}

func newSockets(s *Server) *sockets {
	return &sockets{Server: s, served: map[string]*served{}, logged: map[string]string{}}
}

// follow makes sockets be as the directory says.
func (s *sockets) follow(prefix string) {
	if prefix != s.prefix {
		s.close()
		s.prefix = prefix
	}
	if s.prefix == "" {
		return
	}
	if s.root != nil && !s.same() {
		s.close() // the directory is another one
	}
	if s.root == nil {
		root, err := os.OpenRoot(s.prefix)
		if err == nil {
			err = s.prepare(root)
		}
		if s.problem("", err); err != nil {
			return
		}
		s.root, s.waits = root, true
	}
	s.looks++
	info, err := s.root.Stat(credentialsDir)
	if errors.Is(err, fs.ErrNotExist) {
		s.stopAll() // no workload has asked yet
		return
	}
	if s.problem("", err); err != nil {
		return
	}
	// Times of files are those of the last tick of the kernel's clock: what changes within one may not show.
	if info.ModTime().Equal(s.seen) && time.Since(s.seen) > time.Second && !s.waits && s.looks%rereadEvery != 0 {
		return
	}
	s.seen, s.waits = info.ModTime(), false
	s.look()
}

// same reports whether the directory is still where it was.
func (s *sockets) same() bool {
	is, err := s.root.Stat(".")
	at, gone := os.Stat(s.prefix)
	return err == nil && gone == nil && os.SameFile(is, at)
}

// prepare makes the place where sockets are made.
func (s *sockets) prepare(root *os.Root) error {
	if err := root.RemoveAll(stagingDir); err != nil {
		return err
	}
	return root.Mkdir(stagingDir, 0o700)
}

// look reads the files.
func (s *sockets) look() {
	names, err := s.names()
	if s.problem("", err); err != nil {
		s.waits = true
		return
	}
	for name, is := range s.served {
		if !slices.Contains(names, name) {
			s.stop(name, is)
		}
	}
	for name := range s.logged {
		if name != "" && !slices.Contains(names, name) {
			delete(s.logged, name)
		}
	}
	for _, name := range names {
		err := s.serve(name)
		if s.problem(name, err); err != nil {
			s.waits = true
		}
	}
}

// names are those of the files, without suffix.
func (s *sockets) names() (out []string, err error) {
	d, err := s.root.Open(credentialsDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	list, err := d.Readdirnames(-1)
	for _, file := range list {
		if name, is := strings.CutSuffix(file, suffix); is {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	if len(out) > maxSockets {
		return out[:maxSockets], fmt.Errorf("%s has %d files: %d workloads are served", credentialsDir, len(out), maxSockets)
	}
	return out, err
}

// serve makes the socket of a file, if there is none for what it says.
func (s *sockets) serve(name string) error {
	text, of, err := s.read(name)
	is := s.served[name]
	if is != nil && err == nil && is.text == text && s.there(name, is) {
		return nil
	}
	if is != nil {
		s.stop(name, is)
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(mountDir, name)
	if info, err := s.root.Lstat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s for its socket", filepath.Join(s.prefix, dir))
	}
	if err := s.root.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // it had been there, and others have removed it
	}
	s.number++
	staged := filepath.Join(stagingDir, fmt.Sprint(s.number))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(s.prefix, staged)})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	// The workload writes to the directory. What it puts there under the socket's name is replaced, and never followed.
	info, err := s.root.Lstat(staged)
	if err == nil {
		err = s.root.Chmod(staged, 0o666)
	}
	if err == nil {
		err = s.root.Rename(staged, filepath.Join(dir, socketName))
	}
	if err != nil {
		_ = l.Close()
		_ = s.root.Remove(staged)
		return err
	}
	now := &served{text: text, of: of, server: s.newGRPC(of), is: info}
	s.served[name] = now
	go func() { _ = now.server.Serve(newLimited(l)) }() // it ends with Stop
	return nil
}

// read returns what a file says.
func (s *sockets) read(name string) (text string, of workload, err error) {
	if !plainName(name) {
		return "", of, errors.New("its name is that of no volume: want letters, digits, dots, dashes and underscores, and none of the dots at the beginning")
	}
	path := filepath.Join(credentialsDir, name+suffix)
	if info, err := s.root.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return "", of, errors.Join(err, errors.New("it is no file"))
	}
	f, err := s.root.Open(path)
	if err != nil {
		return "", of, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err != nil {
		return "", of, err
	}
	if len(data) > maxCredentials {
		return "", of, fmt.Errorf("it has more than %d bytes", maxCredentials)
	}
	of, err = parse(data)
	return string(data), of, err
}

func parse(data []byte) (of workload, err error) {
	c := credentialsFile{Orchestrator: "k8s", Endpoint: "eth0"}
	if err := json.Unmarshal(data, &c); err != nil {
		return of, err
	}
	for field, text := range map[string]string{"Workload": c.Workload, "Namespace": c.Namespace, "Orchestrator": c.Orchestrator, "Endpoint": c.Endpoint} {
		if text == "" || len(text) > 253 || strings.ContainsFunc(text, func(r rune) bool { return r == '/' || r <= ' ' || r > '~' }) {
			return of, fmt.Errorf("its %s is %q: want the name of one", field, text)
		}
	}
	return workload{c.Orchestrator, c.Namespace + "/" + c.Workload, c.Endpoint}, nil
}

func plainName(name string) bool {
	return name != "" && name[0] != '.' && len(name) <= 200 && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	})
}

// there reports whether a socket is where it was put.
func (s *sockets) there(name string, is *served) bool {
	info, err := s.root.Lstat(filepath.Join(mountDir, name, socketName))
	return err == nil && os.SameFile(info, is.is)
}

// stop ends what is served, and removes its socket.
func (s *sockets) stop(name string, is *served) {
	is.server.Stop()
	if s.there(name, is) {
		_ = s.root.Remove(filepath.Join(mountDir, name, socketName)) // it goes with the directory, too
	}
	delete(s.served, name)
}

func (s *sockets) stopAll() {
	for name, is := range maps.Clone(s.served) {
		s.stop(name, is)
	}
}

// close ends all.
func (s *sockets) close() {
	s.stopAll()
	if s.root != nil {
		_ = s.root.RemoveAll(stagingDir)
		_ = s.root.Close()
	}
	s.root, s.seen = nil, time.Time{}
	clear(s.logged)
}

// problem logs what is wrong with a file, or with the directory, once.
func (s *sockets) problem(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.logged[name] == text {
		return
	}
	s.logged[name] = text
	if err == nil {
		return
	}
	file := filepath.Join(s.prefix, credentialsDir)
	if name != "" {
		file = filepath.Join(file, name+suffix)
	}
	s.cfg.Log.Warn("workloads' proxies are not served", "file", file, "err", err)
}
