package etcdadmin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
)

// Snapshot is what a file holds that Save has written.
type Snapshot struct {
	File     string `json:"file"`
	Size     int64  `json:"size"` // of the file, in bytes
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`    // that exist at the revision
	Hash     string `json:"hash"`    // of what is in the database, as etcd's own tools print it
	Version  string `json:"version"` // of the database's format; empty: of etcd before 3.6
}

// Save writes all that one member has into a new file, which has its name only once it is complete and on the disk, and was read and found to be what the
// member sent. Wrote is called with how many bytes have come so far.
func (a *Admin) Save(ctx context.Context, file string, wrote func(n int64)) (Snapshot, error) {
	if _, err := os.Lstat(file); err == nil {
		return Snapshot{}, fmt.Errorf("%s: %w; a backup is not overwritten", file, fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".part-") // the owner's alone
	if err != nil {
		return Snapshot{}, err
	}
	defer os.Remove(part.Name()) // which is not there once it has its name
	defer part.Close()
	stream, end, err := a.stream(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", etcdstore.Explain(ctx, err))
	}
	defer end()
	defer stream.Snapshot.Close()
	if _, err := io.Copy(&counted{w: part, wrote: wrote}, stream.Snapshot); err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", etcdstore.Explain(ctx, err))
	}
	if err := part.Sync(); err != nil {
		return Snapshot{}, err
	}
	s, err := Inspect(part.Name())
	if err != nil {
		return Snapshot{}, err
	}
	s.File = file
	return s, rename(part.Name(), file)
}

// stream begins a snapshot of the first member that answers. Before, that member is read from, which it answers only when it has all that was
// decided so far: a snapshot alone may be of one that lags behind.
func (a *Admin) stream(ctx context.Context) (s *clientv3.SnapshotResponse, end func(), err error) {
	for _, endpoint := range a.client.Endpoints() {
		conn, e := a.client.Dial(endpoint)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		kv, maintenance := clientv3.NewKVFromKVClient(pb.NewKVClient(conn), a.client), clientv3.NewMaintenanceFromMaintenanceClient(pb.NewMaintenanceClient(conn), a.client)
		reading, cancel := context.WithTimeout(ctx, answerTime)
		_, e = kv.Get(reading, "\x00", clientv3.WithCountOnly())
		cancel()
		if e == nil {
			s, e = maintenance.SnapshotWithVersion(ctx)
		}
		if e == nil {
			return s, func() { _ = conn.Close() }, nil
		}
		_ = conn.Close()
		err = errors.Join(err, e)
	}
	return nil, nil, err
}

// counted calls wrote with how much was written.
type counted struct {
	w     io.Writer
	n     int64
	wrote func(int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.wrote(c.n)
	return n, err
}

// rename gives a file or directory its name, for good: after a power cut it has it, too.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Inspect reads a snapshot. A file that is not whole is an error.
func Inspect(file string) (Snapshot, error) {
	size, err := verify(file)
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", file, err)
	}
	s, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", file, err)
	}
	return Snapshot{File: file, Size: size, Revision: s.Revision, Keys: s.TotalKey, Hash: fmt.Sprintf("%x", s.Hash), Version: s.Version}, nil
}

// errNoSnapshot is a file that does not end as a snapshot does: with the hash of all before it, which are pages of a multiple of 512 bytes.
var errNoSnapshot = errors.New("it is no snapshot, or a part of one is missing")

// verify compares what a snapshot holds with its hash, and returns its size.
func verify(file string) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	content := st.Size() - sha256.Size
	if content <= 0 || content%512 != 0 {
		return 0, errNoSnapshot
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(sum, f, content); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(f, want); err != nil {
		return 0, err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return 0, errors.New("its content is not that of its hash: it was damaged")
	}
	return st.Size(), nil
}

// revisionBump is how far the revision of restored data is ahead of that of the backup: further than any cluster came since, so that no revision is
// used for two states, and whoever watches from one of them gets the error that it is compacted, and lists again.
const revisionBump = 1 << 30

// Restored is a data directory that was made from a snapshot.
type Restored struct {
	Snapshot Snapshot `json:"snapshot"`
	Dir      string   `json:"dir"`
	Revision int64    `json:"revision"` // of what was restored
	Name     string   `json:"name"`     // of the member that it is for
	Cluster  string   `json:"cluster"`  // all members, each of which is restored from the same file
}

// Restore makes the data directory of a member from a snapshot, for [member.Start] with the same configuration. The directory must not exist, or be empty;
// it has its name only once it is complete.
func Restore(file string, cfg member.Config) (Restored, error) {
	s, err := Inspect(file)
	if err != nil {
		return Restored{}, err
	}
	cfg.Dir = filepath.Clean(cfg.Dir)
	switch there, err := os.ReadDir(cfg.Dir); {
	case err == nil && len(there) > 0:
		return Restored{}, fmt.Errorf("%s: %w and is not empty; stop the member that it belongs to and move it away", cfg.Dir, fs.ErrExist)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Restored{}, err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Dir), 0o755); err != nil {
		return Restored{}, err
	}
	final := cfg.Dir
	if cfg.Dir, err = os.MkdirTemp(filepath.Dir(final), "."+filepath.Base(final)+".part-"); err != nil {
		return Restored{}, err
	}
	defer os.RemoveAll(cfg.Dir)
	id, err := cfg.Identity()
	if err != nil {
		return Restored{}, err
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: id.Name, OutputDataDir: id.Dir, PeerURLs: id.PeerURLs, InitialCluster: id.Cluster, InitialClusterToken: id.Token,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return Restored{}, fmt.Errorf("restore %s: %w", file, err)
	}
	if err := rename(cfg.Dir, final); err != nil {
		return Restored{}, err
	}
	return Restored{s, final, s.Revision + revisionBump, id.Name, id.Cluster}, nil
}
