package kubestore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestAQuestionIsAskedOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q question
		var asked uint64
		server := make(chan struct{})
		ask := func() (uint64, error) {
			asked++
			<-server
			return asked, nil
		}
		var all sync.WaitGroup
		answers := make(chan uint64, 20)
		wants := func() {
			all.Go(func() {
				n, err := q.ask(t.Context(), ask)
				if err != nil {
					t.Error(err)
				}
				answers <- n
			})
		}
		wants()
		synctest.Wait() // the first is being asked
		for range 10 {
			wants()
		}
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := q.ask(ended, ask); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait: error %v", err)
		}
		server <- struct{}{}
		server <- struct{}{}
		all.Wait()
		close(answers)
		got := map[uint64]int{}
		for n := range answers {
			got[n]++
		}
		if got[1] != 1 || got[2] != 10 {
			t.Errorf("answers %v, want the first for who asked before, and one more for all others", got)
		}
	})
}
