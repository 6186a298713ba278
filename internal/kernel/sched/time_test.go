package sched_test

import (
	"testing"

	"github.com/twillnet/twill/internal/kernel/sched"
)

func TestProcessTimeGrowsWithWork(t *testing.T) {
	before := sched.ProcessTime()
	for work := 0; sched.ProcessTime() <= before; work++ {
		if work > 1e9 {
			t.Fatalf("it stays %v", before)
		}
	}
	if before <= 0 {
		t.Errorf("this process used %v before", before)
	}
}
