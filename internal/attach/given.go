package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/twillnet/twill/internal/attach/wire"
)

// What endpoints were given outlives the agent, in a file of each: else the next one would go by what the kubelet still reports, and take the address
// of a pod's last sandbox from the pod that has it by now.
const givenSuffix = ".given" // in the directory of notes

// gift is such a file.
type gift struct {
	Key string
	Given
}

func (s *Server) giftFile(key string) string {
	sum := sha256.Sum256([]byte(key)) // a name of an endpoint may be as long as that of a file
	return filepath.Join(s.cfg.Notes, hex.EncodeToString(sum[:])+givenSuffix)
}

// give has the updates of an endpoint have the addresses that it was given, also after a restart.
func (s *Server) give(key string, g Given) {
	text, err := json.Marshal(gift{key, g})
	if err == nil {
		err = wire.WriteNote(s.giftFile(key), text)
	}
	if err != nil {
		s.cfg.Log.Warn("an agent that starts before the kubelet reports a pod's new addresses will go by its old ones", "endpoint", key, "err", err)
	}
	s.cfg.Kernel.Give(key, g)
}

// readGifts gives endpoints what the process before gave them. What the datastore says otherwise by now ends it, as ever.
func (s *Server) readGifts() {
	files, err := os.ReadDir(s.cfg.Notes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Warn("pods may have the addresses of their last sandboxes until the kubelet reports the new ones", "err", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), givenSuffix) {
			continue
		}
		path := filepath.Join(s.cfg.Notes, f.Name())
		g, err := readGift(path)
		if err == nil && s.giftFile(g.Key) != path {
			err = fmt.Errorf("it is of endpoint %s", g.Key)
		}
		if err != nil {
			s.cfg.Log.Warn("a pod may have the address of its last sandbox until the kubelet reports the new one", "file", path, "err", err)
			continue
		}
		s.cfg.Kernel.Give(g.Key, g.Given)
	}
}

// dropGift forgets what an endpoint was given for a container, which is detached. A file that stays says nothing of another container.
func (s *Server) dropGift(key, container string) {
	path := s.giftFile(key)
	g, err := readGift(path)
	if err == nil && g.Container != container {
		return // a later one's
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Warn("what a container was given stays noted", "file", path, "err", err)
	}
}

func readGift(path string) (g gift, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g, err
}
