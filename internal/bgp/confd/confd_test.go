package confd_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/bgp/confd"
)

// site is a directory of templates, and one into which they are rendered. Commands are recorded; those that are in refuses fail.
type site struct {
	*testing.T
	dir, dest string
	*confd.Renderer
	ran     []string
	refuses string // a part of commands
}

func newSite(t *testing.T, keep bool) *site {
	s := &site{T: t, dir: t.TempDir(), dest: t.TempDir()}
	s.Renderer = confd.New(confd.Config{Dir: s.dir, Node: "h1", KeepStage: keep, Log: slog.New(slog.DiscardHandler), Run: func(_ context.Context, command string) error {
		s.ran = append(s.ran, strings.ReplaceAll(command, s.dest, "DEST"))
		if s.refuses != "" && strings.Contains(command, s.refuses) {
			return errors.New("exit status 1")
		}
		return nil
	}})
	return s
}

// set writes a template resource NAME.toml, with dest NAME and more fields, and its template.
func (s *site) set(name, fields, template string) {
	s.Helper()
	s.write("conf.d/"+name+".toml", fmt.Sprintf("[template]\nsrc = %q\ndest = %q\n%s\n", name+".tmpl", filepath.Join(s.dest, name), fields))
	s.write("templates/"+name+".tmpl", template)
}

func (s *site) write(file, text string) {
	s.Helper()
	file = filepath.Join(s.dir, file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		s.Fatal(err)
	}
}

// has is what the destination directory has: NAME=TEXT, all files of it.
func (s *site) has() string {
	s.Helper()
	entries, err := os.ReadDir(s.dest)
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(s.dest, e.Name()))
		if err != nil {
			s.Fatal(err)
		}
		out = append(out, e.Name()+"="+string(text))
	}
	return strings.Join(out, " ")
}

// render renders, and wants files and commands, and problems: NAME: a part of each.
func (s *site) render(keys confd.Keys, files, commands string, problems map[string]string) {
	s.Helper()
	s.ran = nil
	_, errs := s.Render(s.Context(), keys)
	if got := s.has(); got != files {
		s.Errorf("files\n%s\nwant\n%s", got, files)
	}
	if got := strings.Join(s.ran, "; "); got != commands {
		s.Errorf("commands %q, want %q", got, commands)
	}
	if len(errs) != len(problems) {
		s.Errorf("problems %v, want %v", errs, problems)
	}
	for name, part := range problems {
		if err := errs[name+".toml"]; err == nil || !strings.Contains(err.Error(), part) {
			s.Errorf("%s: %v, want %q", name, err, part)
		}
	}
}

func keys(pairs ...string) confd.Keys {
	out := confd.Keys{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = confd.Value{Text: pairs[i+1]}
	}
	return out
}

const all = `keys = ["/"]`

func TestABrokenSetLeavesItsFileAndTheOthersGoOn(t *testing.T) {
	for _, tt := range []struct{ name, fields, template, says string }{
		{"TOML that cannot be parsed", "keys = [", "new", "line 4"},
		{"a field that confd does not have", "reload_comand = \"x\"", "new", "line 4: there is no field template.reload_comand"},
		{"a mode that is none", `mode = "rw"`, "new", `mode "rw": want an octal number`},
		{"a mode with more than permissions", `mode = "4755"`, "new", "at most 0777"},
		{"an owner that does not exist", `owner = "no-such-user"`, "new", "owner: user: unknown user no-such-user"},
		{"an owner twice", "uid = 0\nowner = \"root\"", "new", "uid and owner: want one of them"},
		{"a group that does not exist", `group = "no-such-group"`, "new", "group: group: unknown group no-such-group"},
		{"a template that cannot be parsed", all, "{{if}}", "missing value for if"},
		{"a function that confd does not have", all, `{{getBGPConfig 4 .}}`, `function "getBGPConfig" not defined`},
		{"a key that does not exist", all, `new {{getv "/none"}}`, "key /none does not exist"},
		{"a key that is not among keys", `keys = ["/other"]`, `new {{getv "/k"}}`, "key /k does not exist, or is not among keys"},
		{"a function that fails", all, `new {{index (split "a:b" ":") 9}}`, "index out of range"},
		{"a division by zero", all, `new {{div 1 0}}`, "divide by zero"},
		{"a list without end", all, `{{range seq 0 9223372036854775807}}x{{end}}`, "want at most 1048576 numbers"},
		{"a template that calls itself", all, `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`, "exceeded maximum template depth"},
		{"a check that refuses", all + "\ncheck_cmd = \"refuse {{.src}}\"", "new", "check_cmd refuses it"},
		{"a check that is no template", all + "\ncheck_cmd = \"refuse {{.src\"", "new", "check_cmd"},
		{"a check with another field", all + "\ncheck_cmd = \"refuse {{.dest}}\"", "new", `no entry for key "dest"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, false)
			s.refuses = "refuse"
			s.set("a", all, "first")
			s.set("b", all, "old")
			s.set("c", all, `{{getv "/k"}}`)
			s.render(keys("/k", "1"), "a=first b=old c=1", "", nil)
			s.set("b", tt.fields, tt.template)
			s.ran = nil
			_, errs := s.Render(t.Context(), keys("/k", "2"))
			if got := s.has(); got != "a=first b=old c=2" {
				t.Errorf("files %s", got)
			}
			if err := errs["b.toml"]; len(errs) != 1 || err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("problems %v, want %q", errs, tt.says)
			}
			s.set("b", all, "mended")
			s.render(keys("/k", "2"), "a=first b=mended c=2", "", nil)
		})
	}
}

func TestResourcesThatWouldWriteElsewhereAreRefused(t *testing.T) {
	s := newSite(t, false)
	s.set("a", all, "x")
	for name, text := range map[string]string{
		"relative": "[template]\nsrc = \"a.tmpl\"\ndest = \"etc/x\"\n",
		"none":     "[template]\nsrc = \"a.tmpl\"\n",
		"outside":  fmt.Sprintf("[template]\nsrc = \"../secret\"\ndest = %q\n", filepath.Join(s.dest, "o")),
		"empty":    "",
		"second":   fmt.Sprintf("[template]\nsrc = \"a.tmpl\"\ndest = %q\n", filepath.Join(s.dest, "x", "..", "a")),
		"folder":   fmt.Sprintf("[template]\nsrc = \"a.tmpl\"\ndest = %q\n", s.dest),
		"nowhere":  fmt.Sprintf("[template]\nsrc = \"a.tmpl\"\ndest = %q\n", filepath.Join(s.dest, "no", "such")),
		"missing":  fmt.Sprintf("[template]\nsrc = \"no.tmpl\"\ndest = %q\n", filepath.Join(s.dest, "m")),
	} {
		s.write("conf.d/"+name+".toml", text)
	}
	s.write("conf.d/readme.md", "not a resource")
	s.render(nil, "a=x", "", map[string]string{
		"relative": "want the absolute path of a file", "none": "want the absolute path", "outside": "want the name of a file in templates",
		"empty": "there is no [template] in it", "second": "is written by a.toml", "folder": "is no regular file", "nowhere": "no such file", "missing": "no.tmpl: no such file",
	})
}

func TestAReloadThatFailsIsTriedAgain(t *testing.T) {
	s := newSite(t, false)
	s.refuses = "reload"
	s.set("a", all+"\ncheck_cmd = \"check {{.src}}\"\nreload_cmd = \"reload a\"", `{{getv "/k"}}`)
	failed := map[string]string{"a": "is replaced, but reload_cmd failed: exit status 1"}
	s.render(keys("/k", "1"), "a=1", "check DEST/.a.new; reload a", failed)
	s.render(keys("/k", "1"), "a=1", "reload a", failed)
	s.refuses = ""
	s.render(keys("/k", "1"), "a=1", "reload a", nil)
	s.render(keys("/k", "1"), "a=1", "", nil)
	s.render(keys("/k", "2"), "a=2", "check DEST/.a.new; reload a", nil)
	s.refuses = "reload"
	s.render(keys("/k", "3"), "a=3", "check DEST/.a.new; reload a", failed)
	s.refuses = "check" // what is not reloaded yet stays so while the next one is refused
	s.render(keys("/k", "4"), "a=3", "check DEST/.a.new", map[string]string{"a": "check_cmd refuses it"})
	s.refuses = ""
	s.render(keys("/k", "3"), "a=3", "reload a", nil)
}

// TestACheckMayNeedWhatAnotherResourceWrites: as a configuration and what it includes.
func TestACheckMayNeedWhatAnotherResourceWrites(t *testing.T) {
	s := newSite(t, false)
	s.Renderer = confd.New(confd.Config{Dir: s.dir, Log: slog.New(slog.DiscardHandler), Run: func(context.Context, string) error {
		_, err := os.Stat(filepath.Join(s.dest, "z-included"))
		return err
	}})
	s.set("a", all+"\ncheck_cmd = \"x\"", "includes z")
	s.set("z-included", all, "z")
	s.render(nil, "a=includes z z-included=z", "", nil)
}

func TestOwnerAndModeAreTheResourcesOrStay(t *testing.T) {
	s := newSite(t, false)
	secret := confd.Keys{"/p": {Text: "sesame", Secret: true}}
	s.set("plain", "", "1")
	s.set("password", all, `{{getv "/p"}}`)
	s.set("said", all+"\nmode = \"0640\"\nuid = 0\ngroup = \"root\"", `{{getv "/p"}}`)
	s.set("kept", "", "1")
	kept := filepath.Join(s.dest, "kept")
	if err := os.WriteFile(kept, []byte("0"), 0o604); err != nil {
		t.Fatal(err)
	}
	s.render(secret, "kept=1 password=sesame plain=1 said=sesame", "", nil)
	for name, want := range map[string]fs.FileMode{"plain": 0o644, "password": 0o600, "said": 0o640, "kept": 0o604} {
		info, err := os.Stat(filepath.Join(s.dest, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	s.set("plain", "mode = \"600\"", "1") // the same text
	s.render(secret, "kept=1 password=sesame plain=1 said=sesame", "", nil)
	if info, _ := os.Stat(filepath.Join(s.dest, "plain")); info.Mode().Perm() != 0o600 {
		t.Errorf("plain has %v", info.Mode())
	}
}

// TestAFileIsReplacedByARename: who has it open reads the old one to its end.
func TestAFileIsReplacedByARename(t *testing.T) {
	s := newSite(t, false)
	s.set("a", all, `{{getv "/k"}}`)
	inode := func() uint64 {
		info, err := os.Stat(filepath.Join(s.dest, "a"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	s.render(keys("/k", "1"), "a=1", "", nil)
	first := inode()
	s.render(keys("/k", "1", "/other", "2"), "a=1", "", nil)
	if inode() != first {
		t.Error("what did not change was replaced")
	}
	s.render(keys("/k", "2"), "a=2", "", nil)
	if inode() == first {
		t.Error("the file was written in place")
	}
}

func TestWhatIsRefusedCanBeKept(t *testing.T) {
	s := newSite(t, true)
	s.refuses = "check"
	s.set("a", all+"\ncheck_cmd = \"check\"", "bad")
	s.render(nil, "a.stage=bad", "check", map[string]string{"a": "it is kept as " + filepath.Join(s.dest, "a.stage")})
}

func TestAChangeOfTheDirectoryIsSeen(t *testing.T) {
	s := newSite(t, false)
	s.set("a", all, "1")
	s.render(nil, "a=1", "", nil)
	if s.Changed() {
		t.Error("nothing changed")
	}
	for _, change := range []func(){
		func() { s.write("templates/a.tmpl", "22") },
		func() { s.set("b", all, "b") },
		func() { _ = os.Remove(filepath.Join(s.dir, "conf.d", "b.toml")) },
	} {
		change()
		if !s.Changed() {
			t.Error("a change is not seen")
		}
		s.Render(t.Context(), nil)
	}
	if got := s.has(); got != "a=22 b=b" { // what is no longer rendered stays
		t.Error(got)
	}
}

func TestPrefixesAndNodeNames(t *testing.T) {
	k := keys("/calico/bgp/v1/host/h1/as_num", "65001", "/calico/bgp/v1/host/h2/as_num", "65002", "/calico/staticroutes/10.0.0.0-8", "10.0.0.0/8")
	for _, tt := range []struct{ name, fields, template, want string }{
		{"without a prefix keys are whole", `keys = ["/calico/bgp"]`, `{{getv "/calico/bgp/v1/host/h2/as_num"}}`, "65002"},
		{"with one they are what follows", "prefix = \"/calico/bgp/v1\"\nkeys = [\"/host\"]", `{{getv "/host/h2/as_num"}}`, "65002"},
		{"which needs no slash", "prefix = \"calico\"\nkeys = [\"/bgp\", \"/staticroutes\"]", `{{ls "/staticroutes"}}{{ls "/bgp/v1"}}`, "[10.0.0.0-8][host]"},
		{"the node's keys alone", "prefix = \"/calico\"\nkeys = [\"/bgp/v1/host//NODENAME\"]", `{{range gets "/bgp/v1/host/*/*"}}{{.Key}}={{.Value}}{{end}}`, "/bgp/v1/host/h1/as_num=65001"},
		{"the node's name in a prefix", "prefix = \"/calico/bgp/v1/host//NODENAME\"\nkeys = [\"/\"]", `{{getv "/as_num"}}`, "65001"},
		{"no keys, nothing to read", "", `{{ls "/"}}{{getenv "NO_SUCH_VARIABLE" "none"}}`, "[]none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, false)
			s.set("a", tt.fields, tt.template)
			s.T = t
			s.render(k, "a="+tt.want, "", nil)
		})
	}
}

func TestFunctions(t *testing.T) {
	t.Setenv("TEMPLATE_VARIABLE", "set")
	k := keys("/app/a", "2", "/app/bb", "1", "/dir/x/1", `{"ip":"10.0.0.1","list":[1,"two"]}`, "/dir/y/1", "[]", "/dir/leaf", "l")
	for template, want := range map[string]string{
		`{{exists "/app/a"}} {{exists "/app"}} {{exists "/app/a/"}}`:                                                             "true false true",
		`{{with get "/app/a"}}{{.Key}}={{.Value}}{{end}}`:                                                                        "/app/a=2",
		`{{range gets "/app/*"}}{{.Key}}={{.Value}} {{end}}{{gets "/none/*"}}`:                                                   "/app/a=2 /app/bb=1 []",
		`{{getv "/app/a"}} {{getv "/none" "else"}} {{getvs "/app/*"}}`:                                                           "2 else [1 2]",
		`{{ls "/"}} {{ls "/dir"}} {{lsdir "/dir"}} {{ls "/dir/leaf"}} {{ls "/n"}}`:                                               "[app dir] [leaf x y] [x y] [leaf] []",
		`{{ls "/ap"}} {{lsdir "/dir/"}} {{lsdir "/dir/leaf"}}`:                                                                   "[] [x y] []",
		`{{$d := json (getv "/dir/x/1")}}{{$d.ip}} {{index $d.list 1}}`:                                                          "10.0.0.1 two",
		`{{range jsonArray "[1,2]"}}<{{.}}>{{end}}`:                                                                              "<1><2>",
		`{{base "/a/b"}} {{dir "/a/b"}} {{getenv "TEMPLATE_VARIABLE" "x"}}`:                                                      "b /a set",
		`{{join (split "a.b" ".") "_"}} {{toUpper "a"}} {{toLower "B"}}`:                                                         "a_b A b",
		`{{contains "abc" "b"}} {{replace "a-b-c" "-" "/" 1}} {{trimSuffix "a.b" ".b"}} {{hasSuffix "a/32" "/32"}}`:              "true a/b-c a true",
		`{{parseBool "false"}} {{atoi "7"}} {{add 1 2}} {{sub 3 1}} {{mul 2 3}} {{div 7 2}} {{mod 7 2}} {{seq 1 3}} {{seq 2 1}}`: "false 7 3 2 6 3 1 [1 2 3] []",
		`{{reverse (getvs "/app/*")}} {{range reverse (gets "/app/*")}}{{.Value}}{{end}}`:                                        "[2 1] 12",
		`{{sortByLength (split "ccc,a,bb" ",")}} {{range sortKVByLength (gets "/app/*")}}{{.Key}} {{end}}`:                       "[a bb ccc] /app/a /app/bb ",
		`{{base64Encode "a"}} {{base64Decode "YQ=="}} {{fileExists "/proc"}} {{fileExists "/none"}}`:                             "YQ== a true false",
		`{{$m := map "name" "x" "port" 9}}{{$m.name}}:{{index $m "port"}}`:                                                       "x:9",
		`{{lookupIP "127.0.0.1"}} {{lookupIPV4 "127.0.0.1"}} {{lookupIPV6 "::1"}} {{lookupIPV6 "127.0.0.1"}}`:                    "[127.0.0.1] [127.0.0.1] [::1] []",
		`{{hashToIPv4 "h1"}}`: "51.17.46.225", // of the SHA-256
		`{{with datetime}}{{if gt .Year 2000}}now{{end}}{{end}}`: "now",
	} {
		t.Run(template, func(t *testing.T) {
			s := newSite(t, false)
			s.set("a", all, template)
			s.render(k, "a="+want, "", nil)
		})
	}
	for template, says := range map[string]string{
		`{{map "a"}}`: "want pairs", `{{map 1 2}}`: "want a string", `{{json "["}}`: "unexpected end", `{{jsonArray "{}"}}`: "cannot unmarshal", `{{gets "["}}`: "syntax error in pattern",
		`{{reverse 1}}`: "want the result of", `{{base64Decode "?"}}`: "illegal base64", `{{atoi "x"}}`: "invalid syntax", `{{get "/none"}}`: "does not exist", `{{lookupIP "no.such.invalid."}}`: "no.such.invalid",
	} {
		t.Run(template, func(t *testing.T) {
			s := newSite(t, false)
			s.set("a", all, template)
			s.render(k, "", "", map[string]string{"a": says})
		})
	}
}

func TestNoDirectoryHasNoTemplates(t *testing.T) {
	loaded, errs := confd.Load(filepath.Join(t.TempDir(), "none"), "h1")
	if len(loaded) != 0 || len(errs) != 0 {
		t.Errorf("%v, %v", loaded, errs)
	}
	file := filepath.Join(t.TempDir(), "conf.d")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := confd.Load(filepath.Dir(file), "h1"); errs["conf.d"] == nil {
		t.Errorf("conf.d is a file: %v", errs)
	}
}
