// Package packaging is the command that writes what a package of a distribution has in addition to the binary.
//
// In: all commands, whose help makes pages of the manual, and units and scripts of internal/node. Out: files in a directory.
package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/node"
)

// Command is "twill node package".
func Command(e *conn.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "package DIRECTORY",
		Short: "Write what a package of a distribution has in addition to the binary",
		Long: `For whoever makes a package of Twill: write into DIRECTORY, which is made,

  root/       the package's files, each at its place: units of systemd, pages of the
              manual, completions of three shells. The binary, which is this one,
              belongs to /usr/bin/twill
  postinst    what the package manager runs after it has put the files in place, before
  prerm       it removes them, and after that: for dpkg and for RPM
  postrm

Settings are in no package: "twill node install", which postinst runs, makes examples
of them, and a purge removes them.

"make packages" makes a .deb and a .rpm of it. Times in the manual are those of
SOURCE_DATE_EPOCH, if it is set: equal binaries then write equal files.

Exit code: 0 written, 1 it could not be, 2 usage.`,
		Example: "  twill node package bin/package\n  man -M bin/package/root/usr/share/man twill-node-install",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := Files(cmd.Root())
			if err != nil {
				return err
			}
			for _, f := range files {
				if err := writeInto(args[0], f); err != nil {
					return err
				}
			}
			fmt.Fprintf(e.Stdio.Out, "%d files are in %s.\n", len(files), args[0])
			return nil
		},
	}
}

// File is one of them.
type File struct {
	Path    string // below the directory
	Content []byte
	Mode    fs.FileMode
}

func writeInto(dir string, f File) error {
	path := filepath.Join(dir, f.Path)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Content, f.Mode))
}

// Files is what a package has, below the directory of `twill node package`.
func Files(root *cobra.Command) ([]File, error) {
	var out []File
	for _, f := range node.PackageFiles() {
		out = append(out, File{"root" + f.Path, f.Content, f.Mode})
	}
	postinst, prerm, postrm := node.PackageScripts()
	out = append(out, File{"postinst", []byte(postinst), 0o755}, File{"prerm", []byte(prerm), 0o755}, File{"postrm", []byte(postrm), 0o755})
	for path, write := range map[string]func(*bytes.Buffer) error{
		"bash-completion/completions/twill":    func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh/vendor-completions/_twill":        func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish/vendor_completions.d/twill.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return nil, err
		}
		out = append(out, File{"root/usr/share/" + path, b.Bytes(), 0o644})
	}
	pages, err := manual(root)
	for _, p := range pages {
		name := strings.ReplaceAll(p.command, " ", "-")
		twin := func(q page) bool {
			return strings.ReplaceAll(q.command, " ", "-") == name && strings.Count(q.command, " ") < strings.Count(p.command, " ")
		}
		if slices.ContainsFunc(pages, twin) { // as kube controllers has in kube-controllers
			_, words, _ := strings.Cut(p.command, " ")
			name = root.Name() + "-" + strings.ReplaceAll(words, " ", "_")
		}
		out = append(out, File{"root/usr/share/man/man1/" + name + ".1", p.text, 0o644})
	}
	return out, err
}

type page struct {
	command string // as it is typed
	text    []byte
}

// manual is a page of the manual for each command.
func manual(cmd *cobra.Command) (out []page, err error) {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "completion" {
			continue
		}
		pages, err := manual(sub)
		if err != nil {
			return nil, err
		}
		out = append(out, pages...)
	}
	here := *cmd
	here.Long, here.DisableAutoGenTag = inMarkdown(cmd.Long), true
	var b bytes.Buffer
	if err := doc.GenMan(&here, &doc.GenManHeader{Source: "Twill", Manual: "Twill"}, &b); err != nil {
		return nil, fmt.Errorf("page of %s: %w", cmd.CommandPath(), err)
	}
	return append(out, page{command: cmd.CommandPath(), text: b.Bytes()}), nil
}

// inMarkdown gives help the form that the generator of pages reads: tables stay as they are, and in sentences nothing is markup.
func inMarkdown(help string) string {
	paragraphs := strings.Split(help, "\n\n")
	for n, p := range paragraphs {
		if strings.HasPrefix(p, "  ") || strings.Contains(p, "\n  ") {
			paragraphs[n] = "    " + strings.ReplaceAll(p, "\n", "\n    ")
			continue
		}
		paragraphs[n] = strings.NewReplacer(`\`, `\\`, "*", `\*`, "<", `\<`, "_", `\_`, "[", `\[`).Replace(p)
	}
	return strings.Join(paragraphs, "\n\n")
}
