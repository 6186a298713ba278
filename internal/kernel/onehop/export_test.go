package onehop

// ListenFamily listens as on a kernel with IPv4 alone, or on this one.
func ListenFamily(port uint16, onlyFour bool) (*Receiver, error) {
	if !onlyFour {
		return Listen(port)
	}
	fd, err := listen4(port)
	return receiver(fd, port, err)
}
