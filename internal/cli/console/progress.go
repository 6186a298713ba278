package console

import (
	"fmt"
	"io"
)

// progressEvery is after how many resources a long command says how far it is.
const progressEvery = 1000

// progress says on standard error how far long work is. Short work says nothing.
type progress struct {
	out         io.Writer
	done, total int
	did         string
}

func (c Stdio) Progress(total int, did string) *progress {
	return &progress{out: c.Err, total: total, did: did}
}

func (p *progress) Step() {
	if p.done++; p.done%progressEvery == 0 && p.done < p.total {
		fmt.Fprintf(p.out, "twill: %d of %d %s\n", p.done, p.total, p.did)
	}
}
