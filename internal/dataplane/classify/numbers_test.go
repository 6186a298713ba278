package classify

import "testing"

func TestANumberFollowsFromItsContentUntilTwoMeet(t *testing.T) {
	x := newNumbers(10, 19)
	a := x.take(3)
	if a != 13 {
		t.Fatalf("content 3 has number %d, want 13", a)
	}
	b := x.take(13) // meets the first
	if b != 14 {
		t.Fatalf("content 13 has number %d, want 14", b)
	}
	x.release(a)
	if n := x.take(23); n != 15 {
		t.Errorf("another content has number %d while 13 rests, want 15", n)
	}
	if n := x.take(3); n != a {
		t.Errorf("the same content has number %d, want its own, %d", n, a)
	}
	x.release(a)
	x.settle()
	if n := x.take(23); n != a {
		t.Errorf("after a rest, another content has number %d, want %d", n, a)
	}
	if n := x.take(9); n != 19 {
		t.Errorf("content 9 has number %d, want 19", n)
	}
	if n := x.take(19); n != 10 {
		t.Errorf("what meets the last has number %d, want the first, 10", n)
	}
}
