package etcdproxy

// Rounds is how often the proxy has asked who the members are.
func (p *Proxy) Rounds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rounds
}
