package confd

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// functions are those of confd's templates as its documentation has them, and hasSuffix and hashToIPv4 of Calico's.
func functions(k Keys) template.FuncMap {
	return template.FuncMap{
		"exists": k.exists, "get": k.get, "gets": k.gets, "getv": k.getv, "getvs": k.getvs, "ls": k.ls, "lsdir": k.lsdir,
		"base": path.Base, "dir": path.Dir, "getenv": getenv, "datetime": time.Now, "fileExists": fileExists,
		"split": strings.Split, "join": strings.Join, "toUpper": strings.ToUpper, "toLower": strings.ToLower, "contains": strings.Contains,
		"replace": strings.Replace, "trimSuffix": strings.TrimSuffix, "hasSuffix": strings.HasSuffix,
		"json": decode[map[string]any], "jsonArray": decode[[]any], "map": makeMap, "parseBool": strconv.ParseBool,
		"reverse": reverse, "sortByLength": sortByLength, "sortKVByLength": sortKVByLength,
		"lookupIP": lookupIP(any4or6), "lookupIPV4": lookupIP(only4), "lookupIPV6": lookupIP(only6), "lookupSRV": lookupSRV,
		"base64Encode": base64Encode, "base64Decode": base64Decode,
		"add": func(a, b int) int { return a + b }, "sub": func(a, b int) int { return a - b }, "mul": func(a, b int) int { return a * b },
		"div": func(a, b int) int { return a / b }, "mod": func(a, b int) int { return a % b }, // text/template makes an error of a panic
		"seq": seq, "atoi": strconv.Atoi, "hashToIPv4": func(name string) string { return plan.HashedID(name).String() },
	}
}

func getenv(name string, otherwise ...string) string {
	if v := os.Getenv(name); v != "" || len(otherwise) == 0 {
		return v
	}
	return otherwise[0]
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func decode[T any](text string) (out T, err error) {
	err = json.Unmarshal([]byte(text), &out)
	return out, err
}

func makeMap(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("want pairs of a name and a value")
	}
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name: want a string", pairs[i])
		}
		out[name] = pairs[i+1]
	}
	return out, nil
}

func reverse(list any) (any, error) {
	switch l := list.(type) {
	case []string:
		return reversed(l), nil
	case []KVPair:
		return reversed(l), nil
	}
	return nil, fmt.Errorf("%T: want the result of getvs, gets, ls or split", list)
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func sortByLength(list []string) []string {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return list
}

func sortKVByLength(list []KVPair) []KVPair {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b KVPair) int { return cmp.Compare(len(a.Key), len(b.Key)) })
	return list
}

func any4or6(net.IP) bool  { return true }
func only4(ip net.IP) bool { return ip.To4() != nil }
func only6(ip net.IP) bool { return ip.To4() == nil }

// lookupIP are a name's addresses, sorted: servers change their order.
func lookupIP(want func(net.IP) bool) func(string) ([]string, error) {
	return func(name string) ([]string, error) {
		ips, err := net.LookupIP(name)
		var out []string
		for _, ip := range ips {
			if want(ip) {
				out = append(out, ip.String())
			}
		}
		slices.Sort(out)
		return out, err
	}
}

// lookupSRV are a service's records, sorted.
func lookupSRV(service, proto, name string) ([]*net.SRV, error) {
	_, records, err := net.LookupSRV(service, proto, name)
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Weight, b.Weight))
	})
	return records, err
}

func base64Encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func base64Decode(text string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), err
}

// longestSeq is the longest list that seq makes: a typing error must not take all memory.
const longestSeq = 1 << 20

// seq are the numbers from first to last.
func seq(first, last int) ([]int, error) {
	if last >= first && uint(last)-uint(first) >= longestSeq {
		return nil, fmt.Errorf("from %d to %d: want at most %d numbers", first, last, longestSeq)
	}
	var out []int
	for i := first; i <= last; i++ {
		out = append(out, i)
	}
	return out, nil
}
