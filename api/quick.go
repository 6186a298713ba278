package api

// quickWorkload reads a workload endpoint as nearly all are written: known
// fields, each once, plain ASCII text without escapes. A cluster has a hundred
// thousand of them, and every agent reads them all; this is eight times faster than
// encoding/json. It reports false for whatever is not so, and then that decides. Memory is for what many have in common; nil: none.
func quickWorkload(data []byte, w *WorkloadEndpoint, memory *Scratch) bool {
	q := quick{data: data, memory: memory}
	q.object(func(name []byte, seen *uint64) {
		switch string(name) {
		case "kind":
			q.shared(seen, 0, &w.TypeMeta.Kind)
		case "apiVersion":
			q.shared(seen, 1, &w.TypeMeta.APIVersion)
		case "metadata":
			q.once(seen, 2)
			q.metadata(&w.Metadata)
		case "spec":
			q.once(seen, 3)
			q.workload(&w.Spec)
		default:
			q.odd = true
		}
	})
	q.space()
	return !q.odd && q.at == len(data)
}

// quick is a place in a document. Odd: there is something that it does not read.
type quick struct {
	data   []byte
	at     int
	odd    bool
	memory *Scratch // nil: none

	seen  [5]uint64 // fields of the objects around this place, the outermost first
	depth int
}

// texts are texts that were read, by themselves.
type texts map[string]string

// mostTexts bounds how many are kept. A cluster has as many labels as it has applications; of a text that each endpoint has for
// itself, nothing is gained.
const mostTexts = 4096

// common returns a text of which many endpoints have the same.
func (q *quick) common(word []byte) string {
	if q.memory == nil {
		return string(word)
	}
	if s, ok := q.memory.texts[string(word)]; ok {
		return s
	}
	if len(q.memory.texts) >= mostTexts || q.memory.texts == nil {
		q.memory.texts = texts{}
	}
	s := string(word)
	q.memory.texts[s] = s
	return s
}

func (q *quick) metadata(m *ObjectMeta) {
	q.object(func(name []byte, seen *uint64) {
		switch string(name) {
		case "name":
			q.text(seen, 0, &m.Name)
		case "namespace":
			q.shared(seen, 1, &m.Namespace)
		case "uid":
			q.text(seen, 2, &m.UID)
		case "creationTimestamp":
			q.text(seen, 3, &m.CreationTimestamp)
		case "resourceVersion":
			q.text(seen, 4, &m.ResourceVersion)
		case "labels":
			q.labels(seen, 5, &m.Labels)
		case "annotations":
			q.texts(seen, 6, &m.Annotations)
		default:
			q.odd = true
		}
	})
}

func (q *quick) workload(s *WorkloadEndpointSpec) {
	q.object(func(name []byte, seen *uint64) {
		switch string(name) {
		case "orchestrator":
			q.shared(seen, 0, &s.Orchestrator)
		case "workload":
			q.text(seen, 1, &s.Workload)
		case "node":
			q.shared(seen, 2, &s.Node)
		case "containerID":
			q.text(seen, 3, &s.ContainerID)
		case "pod":
			q.text(seen, 4, &s.Pod)
		case "endpoint":
			q.shared(seen, 5, &s.Endpoint)
		case "serviceAccountName":
			q.shared(seen, 6, &s.ServiceAccountName)
		case "ipNetworks":
			q.list(seen, 7, &s.IPNetworks)
		case "profiles":
			q.list(seen, 8, &s.Profiles)
		case "interfaceName":
			q.text(seen, 9, &s.InterfaceName)
		case "mac":
			q.text(seen, 10, &s.MAC)
		case "ports":
			q.once(seen, 11)
			q.ports(&s.Ports)
		default:
			q.odd = true
		}
	})
}

func (q *quick) ports(out *[]WorkloadEndpointPort) {
	*out = []WorkloadEndpointPort{}
	q.elements(func() {
		var p WorkloadEndpointPort
		q.object(func(name []byte, seen *uint64) {
			switch string(name) {
			case "name":
				q.text(seen, 0, &p.Name)
			case "protocol":
				// Text is a protocol's name, whatever it says; a number is left to others.
				q.text(seen, 1, &p.Protocol.Name)
			case "port":
				q.port(seen, 2, &p.Port)
			case "hostPort":
				q.port(seen, 3, &p.HostPort)
			case "hostIP":
				q.text(seen, 4, &p.HostIP)
			default:
				q.odd = true
			}
		})
		*out = append(*out, p)
	})
}

// once notes that a field is there; two of a name are odd.
func (q *quick) once(seen *uint64, field uint) {
	if *seen&(1<<field) != 0 {
		q.odd = true
	}
	*seen |= 1 << field
}

func (q *quick) text(seen *uint64, field uint, out *string) {
	q.once(seen, field)
	*out = string(q.word())
}

// shared is text that many endpoints have.
func (q *quick) shared(seen *uint64, field uint, out *string) {
	q.once(seen, field)
	*out = q.common(q.word())
}

func (q *quick) list(seen *uint64, field uint, out *[]string) {
	q.once(seen, field)
	*out = []string{}
	q.elements(func() { *out = append(*out, string(q.word())) })
}

func (q *quick) texts(seen *uint64, field uint, out *map[string]string) {
	q.once(seen, field)
	*out = map[string]string{}
	q.object(func(name []byte, _ *uint64) { (*out)[string(name)] = string(q.word()) })
}

// labels is texts, in the map of the endpoint that was read before.
func (q *quick) labels(seen *uint64, field uint, out *map[string]string) {
	q.once(seen, field)
	var m map[string]string
	if q.memory != nil {
		m = q.memory.labels
	}
	if clear(m); m == nil {
		m = map[string]string{}
	}
	if *out = m; q.memory != nil {
		q.memory.labels = m
	}
	q.object(func(name []byte, _ *uint64) {
		key := q.common(name)
		m[key] = q.common(q.word())
	})
}

func (q *quick) port(seen *uint64, field uint, out *uint16) {
	q.once(seen, field)
	q.space()
	n, from := 0, q.at
	for q.at < len(q.data) && q.data[q.at] >= '0' && q.data[q.at] <= '9' && q.at-from < 6 {
		n = n*10 + int(q.data[q.at]-'0')
		q.at++
	}
	if digits := q.at - from; digits == 0 || digits > 1 && q.data[from] == '0' || n > 0xffff {
		q.odd = true
	}
	*out = uint16(n)
}

// object walks the members of an object. The name is valid until the next is read.
func (q *quick) object(member func(name []byte, seen *uint64)) {
	q.take('{')
	if q.maybe('}') {
		return
	}
	if q.depth == len(q.seen) {
		q.odd = true
		return
	}
	seen := &q.seen[q.depth]
	*seen = 0
	q.depth++
	defer func() { q.depth-- }()
	for !q.odd {
		name := q.word()
		q.take(':')
		if q.odd {
			return
		}
		member(name, seen)
		if q.maybe('}') {
			return
		}
		q.take(',')
	}
}

func (q *quick) elements(element func()) {
	q.take('[')
	if q.maybe(']') {
		return
	}
	for !q.odd {
		element()
		if q.maybe(']') {
			return
		}
		q.take(',')
	}
}

// word is a text that stands for itself.
func (q *quick) word() []byte {
	q.take('"')
	for from := q.at; q.at < len(q.data) && !q.odd; q.at++ {
		switch c := q.data[q.at]; {
		case c == '"':
			q.at++
			return q.data[from : q.at-1]
		case c < ' ' || c == '\\' || c >= 0x7f:
			q.odd = true
		}
	}
	q.odd = true
	return nil
}

func (q *quick) take(c byte) {
	if !q.maybe(c) {
		q.odd = true
	}
}

func (q *quick) maybe(c byte) bool {
	q.space()
	if q.at < len(q.data) && q.data[q.at] == c {
		q.at++
		return true
	}
	return false
}

func (q *quick) space() {
	for q.at < len(q.data) && (q.data[q.at] == ' ' || q.data[q.at] == '\n' || q.data[q.at] == '\t' || q.data[q.at] == '\r') {
		q.at++
	}
}
