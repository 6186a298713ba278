package intent

import "testing"

func TestSizesOfPackets(t *testing.T) {
	type kinds [TunnelKinds]int
	for _, tt := range []struct {
		name      string
		wanted    []TunnelKind
		settings  kinds
		carried   int
		tunnels   kinds
		workloads int
	}{
		{"no tunnel", nil, kinds{}, 1500, kinds{1450, 1430, 1480, 1440, 1420}, 1500},
		{"IPIP", []TunnelKind{IPIP}, kinds{}, 1500, kinds{1450, 1430, 1480, 1440, 1420}, 1480},
		{"the smallest of several counts", []TunnelKind{IPIP, VXLAN, VXLAN6}, kinds{}, 9000, kinds{8950, 8930, 8980, 8940, 8920}, 8930},
		{"a setting", []TunnelKind{IPIP}, kinds{IPIP: 1400}, 1500, kinds{1450, 1430, 1400, 1440, 1420}, 1400},
		{"a setting of what is not wanted", []TunnelKind{IPIP}, kinds{VXLAN: 1400}, 1500, kinds{1400, 1430, 1480, 1440, 1420}, 1480},
		{"a setting that is too large", []TunnelKind{VXLAN}, kinds{VXLAN: 9000}, 1500, kinds{9000, 1430, 1480, 1440, 1420}, 1500},
		{"links that carry little", []TunnelKind{VXLAN6}, kinds{}, 1300, kinds{1250, 1280, 1280, 1240, 1280}, 1280},
		{"and next to nothing", []TunnelKind{VXLAN}, kinds{}, 100, kinds{68, 1280, 80, 68, 1280}, 68},
	} {
		s := MTUSettings{Tunnels: tt.settings}
		for _, k := range tt.wanted {
			s.Wanted[k] = true
		}
		var tunnels kinds
		for k := range TunnelKinds {
			tunnels[k] = s.In(k, tt.carried)
		}
		if tunnels != tt.tunnels || s.Workloads(tt.carried) != tt.workloads {
			t.Errorf("%s: %v, %d; want %v, %d", tt.name, tunnels, s.Workloads(tt.carried), tt.tunnels, tt.workloads)
		}
	}
}
