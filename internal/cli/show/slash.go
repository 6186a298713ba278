package show

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// TakeSlashes lets a command that takes KIND NAME also take KIND/NAME, as kubectl does: its Args and RunE see two words. With
// several it takes more names, KIND/NAME KIND/NAME, all of one kind; else what follows the name is its own.
func TakeSlashes(cmd *cobra.Command, several bool) *cobra.Command {
	args, run := cmd.Args, cmd.RunE
	if args == nil {
		args = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		words, err := splitSlashes(cmd.Name(), words, several)
		if err != nil {
			return err
		}
		return args(cmd, words)
	}
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		words, err := splitSlashes(cmd.Name(), words, several)
		if err != nil {
			return err
		}
		return run(cmd, words)
	}
	return cmd
}

// splitSlashes returns KIND NAME… for KIND/NAME…, and other words as they are.
func splitSlashes(verb string, words []string, several bool) ([]string, error) {
	if len(words) == 0 || !strings.Contains(words[0], "/") {
		return words, nil
	}
	kind, name, err := splitSlash(verb, words[0])
	if err != nil {
		return nil, err
	}
	out := []string{kind, name}
	if !several {
		return append(out, words[1:]...), nil
	}
	for _, w := range words[1:] {
		if !strings.Contains(w, "/") {
			return nil, console.Usage("%s: %q: want KIND/NAME, as the first", verb, w)
		}
		k, n, err := splitSlash(verb, w)
		if err != nil {
			return nil, err
		}
		if !sameKind(kind, k) {
			return nil, console.Usage("%s: %q and %q are of different kinds; ask for one kind at a time", verb, words[0], w)
		}
		out = append(out, n)
	}
	return out, nil
}

func splitSlash(verb, w string) (kind, name string, err error) {
	kind, name, _ = strings.Cut(w, "/")
	if namespace, last, both := strings.Cut(name, "/"); both {
		return "", "", console.Usage("%s: %q: give the namespace by -n: %s/%s -n %s", verb, w, kind, last, namespace)
	}
	if kind == "" || name == "" {
		return "", "", console.Usage("%s: %q: want KIND/NAME", verb, w)
	}
	return kind, name, nil
}

// sameKind reports whether two words are names of one kind. Of words that are no kind, such as namespace, only equal ones are.
func sameKind(a, b string) bool {
	ka, oka := api.LookupKind(a)
	kb, okb := api.LookupKind(b)
	return a == b || oka && okb && ka.Kind == kb.Kind
}

// Elsewhere returns an error that names the namespaces in which a resource exists that does not exist in that of ref; else err.
func Elsewhere(ctx context.Context, s datastore.Store, ref api.Ref, err error) error {
	kind, ok := api.LookupKind(ref.Kind)
	if !ok || !kind.Namespaced {
		return err
	}
	all, _, unread := find(ctx, s, kind, scope{All: true})
	if in := namespacesOf(all, ref.Name); unread == nil && len(in) > 0 {
		return fmt.Errorf("%s does not exist; it does with %s", resources.Short(ref), strings.Join(in, " or "))
	}
	return err
}

// namespacesOf returns -n NAMESPACE for each resource of that name.
func namespacesOf(all []Found, name string) (out []string) {
	for _, f := range all {
		if f.Ref.Name == name {
			out = append(out, "-n "+f.Ref.Namespace)
		}
	}
	return out
}
