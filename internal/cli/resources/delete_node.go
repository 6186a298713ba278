package resources

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
)

// gone says what was deleted: a resource, or something in words.
func (c *command) gone(what api.Ref, words string, dry dryRun) {
	switch {
	case words == "":
		_ = c.say(what, resources.Written{What: "deleted"}, dry) // a terminal that is gone does not stop a deletion half way
	case dry.active():
		c.also(words + " (dry run)")
	default:
		c.also(words)
	}
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
