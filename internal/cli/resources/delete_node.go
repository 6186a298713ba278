package resources

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/decommission"
	"github.com/twillnet/twill/internal/resources"
)

// deleteNode deletes a node with what hangs on it, after it was asked for.
func (c *command) deleteNode(ctx context.Context, s datastore.Store, ref api.Ref, o deletion) error {
	h, err := decommission.Look(ctx, s, ref.Name)
	if err != nil {
		return err
	}
	lost, refs := h.Loss()
	for i := len(refs) - 1; i >= 0; i-- {
		lost = append([]string{resources.Short(refs[i])}, lost...)
	}
	switch {
	case !h.Exists && o.ignore && !(o.cascade && !h.Empty()):
		return nil
	case !h.Exists && h.Empty():
		return fmt.Errorf("%s does not exist; --skip-not-exists makes that no error", resources.Short(ref))
	case !h.Exists && !o.cascade:
		return fmt.Errorf("%s does not exist, and something is left of it, which --cascade deletes:%s", resources.Short(ref), listed(lost))
	case h.Alive && !o.force:
		return fmt.Errorf("%s: its agent lives, and would write anew what is deleted: stop it there (twill node uninstall) and wait until its last report expires, within two minutes, or pass --force", resources.Short(ref))
	case len(lost) > 0 && !o.cascade && !c.agreed(ref, lost):
		return fmt.Errorf("%s is not deleted, since this hangs on it; --cascade deletes it, too:%s", resources.Short(ref), listed(lost))
	}
	return h.Delete(ctx, s, func(what api.Ref, words string) {
		switch {
		case words == "":
			_ = c.say(what, resources.Written{What: "deleted"}, o.dry) // a terminal that is gone does not stop a deletion half way
		case o.dry.active():
			c.also(words + " (dry run)")
		default:
			c.also(words)
		}
	})
}

// also prints what went that is no resource: on standard error, where people do not read what is printed.
func (c *command) also(words string) {
	if c.out.As.IsTable() {
		fmt.Fprintln(c.Out, words)
		return
	}
	fmt.Fprintln(c.Err, words)
}

// mostListed is how many things a refusal names.
const mostListed = 50

func listed(what []string) string {
	var b strings.Builder
	for i, w := range what {
		if i == mostListed {
			fmt.Fprintf(&b, "\n  … and %d more", len(what)-i)
			break
		}
		b.WriteString("\n  " + w)
	}
	return b.String()
}

// agreed asks on a terminal whether to go on. Where there is none, nobody agrees.
func (c *command) agreed(ref api.Ref, lost []string) bool {
	in, ok := c.Stdio.In.(*os.File)
	if !ok {
		return false
	}
	// A terminal is a character device; /dev/null is one, too, and nobody sits there.
	st, err := in.Stat()
	null, nerr := os.Stat(os.DevNull)
	if err != nil || nerr != nil || st.Mode()&os.ModeCharDevice == 0 || os.SameFile(st, null) {
		return false
	}
	fmt.Fprintf(c.Stdio.Err, "With %s go:%s\nDelete all of it? [y/N] ", resources.Short(ref), listed(lost))
	answer, _ := bufio.NewReader(in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
