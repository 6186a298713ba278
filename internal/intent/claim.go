package intent

import "slices"

// Claim is one endpoint's to an address that other endpoints of the node have, too (decision 110).
type Claim struct {
	Endpoint  EndpointID
	Link, MAC string
	Move      Move
	Shared    bool // by agreement of the endpoints, as an allowed address pair of OpenStack is: it is no fault not to have it
}

// Equal reports whether two routes are the same.
func (r Route) Equal(o Route) bool {
	return r.Dst == o.Dst && r.Kind == o.Kind && r.Link == o.Link && r.MAC == o.MAC && r.Move == o.Move && r.Node == o.Node && r.Via == o.Via && slices.Equal(r.Claims, o.Claims)
}

// At is the route as it would be if the claim of an interface had it.
func (r Route) At(link string) Route {
	if at := slices.IndexFunc(r.Claims, func(c Claim) bool { return c.Link == link }); at >= 0 {
		c := r.Claims[at]
		r.Link, r.MAC, r.Move = c.Link, c.MAC, c.Move
	}
	return r
}

// Coming are those of Links whose machine is still on another host.
func (r Route) Coming() (out []string) {
	if r.Kind != RouteLink {
		return nil
	}
	for _, link := range r.Links() {
		if r.At(link).Move == Comes {
			out = append(out, link)
		}
	}
	return out
}

// Links are the interfaces of all endpoints that claim the destination of a RouteLink.
func (r Route) Links() []string {
	if len(r.Claims) == 0 {
		return []string{r.Link}
	}
	out := make([]string, len(r.Claims))
	for i, c := range r.Claims {
		out[i] = c.Link
	}
	return out
}
