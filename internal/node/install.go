package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Where things are, below Install.Root.
const (
	binary     = "/usr/local/bin/twill"
	units      = "/etc/systemd/system/"
	confDir    = "/etc/twill"
	stateDir   = "/var/lib/twill"
	journal    = stateDir + "/installed.json"
	bootUnit   = "twill-boot.service"
	nodeUnit   = "twill-node.service"
	configFile = confDir + "/twill.conf"
)

// EnvFile has the variables of the units: the form is that of systemd.exec(5), EnvironmentFile.
const EnvFile = confDir + "/node.env"

// Install says how to install on a host.
type Install struct {
	Exe    string                                                     // the binary to install; empty: this one
	Root   string                                                     // what is to be the root directory; empty: the host's own
	Data   []string                                                   // where the node kept its data, besides /var/lib/twill and what its unit names
	Env    []string                                                   // NAME=value lines that the environment file is to have; others in it stay
	DryRun bool                                                       // only say what would be done
	Start  bool                                                       // have systemd start it now, and at each boot
	Out    io.Writer                                                  // gets a line for each action
	System func(ctx context.Context, args ...string) error            // systemctl; nil: the real one
	Found  func() (map[string]string, error)                          // settings of the kernel that are to be given back; nil: none
	Leave  func(context.Context, map[string]string) ([]string, error) // takes what is ours out of the kernel; nil: nothing is
}

// record is what uninstall must know.
type record struct {
	Files    []string          `json:"files"`    // created by the installer
	Dirs     []string          `json:"dirs"`     // that were not there
	Settings map[string]string `json:"settings"` // as they were found
}

// Install puts the binary, units and examples of settings in place. What is
// there already is replaced if it is the binary or a unit, and kept if it is a
// setting; so it also upgrades.
func (i Install) Install(ctx context.Context) error {
	if err := i.systemd(); err != nil {
		return err
	}
	rec, err := i.recorded()
	if errors.Is(err, fs.ErrNotExist) {
		rec = &record{}
		if i.Found != nil {
			rec.Settings, err = i.Found()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	exe := i.Exe
	if exe == "" {
		if exe, err = os.Executable(); err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
	}
	if i.packaged() {
		err = i.overPackage(rec, exe)
	} else {
		err = i.files(rec, exe)
	}
	if err != nil {
		return err
	}
	if err := i.systemctlIfRunning(ctx, "daemon-reload"); err != nil || !i.Start {
		return err
	}
	if err := i.systemctlIfRunning(ctx, "enable", "--now", bootUnit); err != nil {
		return err
	}
	if err := i.systemctlIfRunning(ctx, "enable", nodeUnit); err != nil {
		return err
	}
	return i.systemctlIfRunning(ctx, "restart", nodeUnit) // also of one that runs: this may be an upgrade, and no packet is lost
}

// files puts the binary at exe, units and settings in place. The journal is first: whatever comes after can be taken back.
func (i Install) files(rec *record, exe string) error {
	program, err := os.ReadFile(exe)
	if err != nil {
		return err
	}
	texts := unitTexts(binary, `# Written by "twill node install"; "twill node uninstall" takes it away.`)
	for _, f := range append([]file{
		{path: binary, content: program, mode: 0o755},
		{path: units + bootUnit, content: []byte(texts[bootUnit]), mode: 0o644},
		{path: units + nodeUnit, content: []byte(texts[nodeUnit]), mode: 0o644},
	}, i.settings()...) {
		if err := i.put(rec, f); err != nil {
			return err
		}
	}
	return nil
}

// settings are the environment file of the units and the file of the agent's settings, which are the user's once they are there.
func (i Install) settings() []file {
	return []file{
		{path: EnvFile, content: []byte(envText(i.Env)), mode: 0o600, keep: true, lines: i.Env},
		{path: configFile, content: []byte(configText), mode: 0o644, keep: true},
	}
}

// Uninstall takes back what Install did. What daemons kept in their data directories, the datastore's data above all, stays unless purge.
func (i Install) Uninstall(ctx context.Context, purge bool) error {
	rec, err := i.recorded()
	packaged := i.packaged()
	switch {
	case errors.Is(err, fs.ErrNotExist) && packaged:
		rec = &record{} // the package was never started here
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not there: nothing was installed by `twill node install`", i.Root+journal)
	case err != nil:
		return err
	}
	dirs := i.dataDirs() // while the unit is there
	if err := i.systemctlIfRunning(ctx, "disable", "--now", nodeUnit, bootUnit); err != nil {
		return err
	}
	if i.Leave != nil && !i.DryRun {
		did, err := i.Leave(ctx, rec.Settings)
		for _, d := range did {
			i.say("%s", d)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range slices.Backward(rec.Files) {
		if err := i.remove(f); err != nil {
			return err
		}
	}
	if err := i.systemctlIfRunning(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := i.remove(journal); err != nil {
		return err
	}
	if err := i.data(dirs, purge); err != nil {
		return err
	}
	for _, d := range slices.Backward(rec.Dirs) {
		if !i.DryRun && os.Remove(i.Root+d) == nil {
			i.say("remove %s", i.Root+d)
		}
	}
	if packaged {
		i.say("The files of the package %s stay: your package manager removes them.", packageName)
	}
	return nil
}

type file struct {
	path    string
	content []byte
	mode    fs.FileMode
	keep    bool     // one that is there is the user's
	lines   []string // NAME=value, which one that is there is given nevertheless
}

func (i Install) put(rec *record, f file) error {
	old, err := os.ReadFile(i.Root + f.path)
	there := err == nil
	switch {
	case there && f.keep:
		text, changes := withLines(string(old), f.lines)
		if len(changes) == 0 {
			i.say("keep %s", i.Root+f.path)
			return nil
		}
		f.content = []byte(text)
		for _, c := range changes {
			i.say("%s: %s", i.Root+f.path, c)
		}
	case there && string(old) == string(f.content):
		return nil
	}
	if !there || !f.keep {
		i.say("write %s", i.Root+f.path)
	}
	if i.DryRun {
		return nil
	}
	if !there {
		rec.Files = append(rec.Files, f.path)
	}
	if err := i.mkdir(rec, stateDir, 0o700); err != nil {
		return err
	}
	if err := i.mkdir(rec, filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	if err := i.write(rec); err != nil {
		return err
	}
	return replace(i.Root+f.path, f.content, f.mode)
}

// write writes the journal, whose directory is there.
func (i Install) write(rec *record) error {
	text, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return replace(i.Root+journal, append(text, '\n'), 0o600)
}

// mkdir makes a directory, and notes each that was not there.
func (i Install) mkdir(rec *record, dir string, mode fs.FileMode) error {
	if _, err := os.Stat(i.Root + dir); err == nil || dir == "/" || dir == "." {
		return err
	}
	if err := i.mkdir(rec, filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	rec.Dirs = append(rec.Dirs, dir)
	return os.Mkdir(i.Root+dir, mode)
}

// replace replaces a file atomically, by a rename.
func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (i Install) remove(path string) error {
	i.say("remove %s", i.Root+path)
	if i.DryRun {
		return nil
	}
	if err := os.Remove(i.Root + path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (i Install) recorded() (*record, error) {
	text, err := os.ReadFile(i.Root + journal)
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, fmt.Errorf("%s: %w", i.Root+journal, err)
	}
	return &rec, nil
}

// systemd wants a host that has it, if it is to start anything.
func (i Install) systemd() error {
	if i.System != nil || !i.Start {
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd does not run on this host; put the files in place with --no-start, and start `twill node` by what does run here")
	}
	return nil
}

// systemctlIfRunning runs systemctl, if systemd runs.
func (i Install) systemctlIfRunning(ctx context.Context, args ...string) error {
	system := i.System
	if system == nil {
		if _, err := os.Stat("/run/systemd/system"); err != nil || i.Root != "" {
			return nil
		}
		system = systemctl
	}
	i.say("systemctl %v", args)
	if i.DryRun {
		return nil
	}
	return system(ctx, args...)
}

func systemctl(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %v: %w: %s", args, err, out)
	}
	return nil
}

func (i Install) say(format string, args ...any) { fmt.Fprintf(i.Out, format+"\n", args...) }
