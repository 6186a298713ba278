package bgp

import (
	"strings"
	"testing"
)

func TestBIRDIsRunWhereDebianHasIt(t *testing.T) {
	for _, name := range []string{"TWILL_BIRD_CONF", "TWILL_BIRD_SOCKET"} {
		t.Setenv(name, "")
	}
	for left, want := range map[bool]string{
		false: "bird -f -c /etc/bird/bird.conf -s /run/bird/bird.ctl",
		true:  "bird -f -c /etc/bird/bird.conf -s /run/bird/bird.ctl -R",
	} {
		if got := strings.Join(birdArgs(birdConf(), birdSocket(), left), " "); got != want {
			t.Errorf("with routes of before: %v: %s, want %s", left, got, want)
		}
	}
}
