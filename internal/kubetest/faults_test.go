package kubetest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

func TestAStoppedServerIsSilentAndGoesOn(t *testing.T) {
	s := Start(t)
	s.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // it never answers, however long that is
	defer cancel()
	if err := s.Admin().Call(ctx, "GET", "/readyz", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: error %v, want no answer", err)
	}
	s.Continue(t)
	if err := s.Admin().Call(t.Context(), "GET", "/readyz", nil, nil); err != nil {
		t.Errorf("continued: %v", err)
	}
}

func TestAServerThatWasKilledHasItsDataAndItsTokens(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	writeConfigMap(t, s, ns, "a", "one")
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: nobody, namespace: "+ns+"}\n")
	before, err := readConfigMap(t, s.Admin(), ns, "a")
	if err != nil {
		t.Fatal(err)
	}
	account := s.As(s.Token(t, ns, "nobody"))
	s.Kill(t)
	if _, err := readConfigMap(t, s.Admin(), ns, "a"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("killed: error %v, want a refused connection", err)
	}
	s.Restart(t)
	after, err := readConfigMap(t, s.Admin(), ns, "a")
	if err != nil || after.Data["k"] != "one" || after.Metadata != before.Metadata {
		t.Errorf("started again: %+v, error %v, want %+v", after, err, before)
	}
	if _, err := readConfigMap(t, account, ns, "a"); !refused(err) {
		t.Errorf("an account's token of before: error %v, want 403, as of one that is known", err)
	}
}

func TestARestoredServerIsThatOfTheBackup(t *testing.T) {
	s := New(t, Config{})
	const ns = "default"
	await(t, "the namespace default", func() (bool, error) {
		err := s.Admin().Call(t.Context(), "GET", "/api/v1/namespaces/"+ns, nil, nil)
		return err == nil, err
	})
	writeConfigMap(t, s, ns, "kept", "one")
	backup := s.Backup(t)
	writeConfigMap(t, s, ns, "kept", "two")
	writeConfigMap(t, s, ns, "lost", "one")
	for range 2 { // a backup is not used up
		s.Restore(t, backup)
		if kept, err := readConfigMap(t, s.Admin(), ns, "kept"); err != nil || kept.Data["k"] != "one" {
			t.Errorf("what was in the backup: %+v, error %v", kept, err)
		}
		if _, err := readConfigMap(t, s.Admin(), ns, "lost"); !missing(err) {
			t.Errorf("what came later: error %v, want 404", err)
		}
	}
}
