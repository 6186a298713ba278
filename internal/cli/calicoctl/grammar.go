package calicoctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/calicoctl/flags"
	"github.com/twillnet/twill/internal/cli/calicoctl/noderun"
)

// option is a flag of calicoctl's.
type option struct {
	name, short string
	value       string // what help calls its value; empty: it has none
	def         string
	help        string
	many        bool // it may be given more than once
}

var (
	optConfig     = option{name: "config", short: "c", value: "CONFIG", help: "file that says where the datastore is (default /etc/calico/calicoctl.cfg, if it exists)"}
	optContext    = option{name: "context", value: "context", help: "context of the kubeconfig"}
	optMismatch   = option{name: "allow-version-mismatch", help: "do not ask which version the cluster has"}
	optFile       = option{name: "filename", short: "f", value: "FILENAME", help: "file, directory, or - for standard input"}
	optRecursive  = option{name: "recursive", short: "R", help: "directories with all below them"}
	optSkipEmpty  = option{name: "skip-empty", help: "it is no error if there is no resource in the files"}
	optNamespace  = option{name: "namespace", short: "n", value: "NS", help: "namespace of resources that have one (default: default)"}
	optKubeconfig = option{name: "kubeconfig", value: "KUBECONFIG", help: "how to reach Kubernetes"}
	ofAll         = []option{optConfig, optContext, optMismatch}
	ofFiles       = []option{optFile, optRecursive, optSkipEmpty, optNamespace}
)

// verb is one command of calicoctl's, which may have two or three words.
type verb struct {
	name    string
	usages  []string // of its arguments, for help
	about   string
	options []option
	least   int  // arguments
	most    int  // arguments; -1: any number
	byFile  bool // --filename may stand in the place of the arguments
	checked bool // the cluster's version is looked at first
	run     func(*command, context.Context) error
}

// verbs are all commands.
func verbs() []verb {
	join := slices.Concat[[]option]
	return []verb{
		{name: "create", usages: []string{"--filename=<FILENAME>"}, about: "Create resources of files that must not exist.", options: join(ofFiles, []option{{name: "skip-exists", help: "leave alone what exists already"}}, ofAll), byFile: true, most: 0, checked: true, run: (*command).create},
		{name: "replace", usages: []string{"--filename=<FILENAME>"}, about: "Replace resources by those of files; they must exist.", options: join(ofFiles, ofAll), byFile: true, checked: true, run: (*command).replace},
		{name: "apply", usages: []string{"--filename=<FILENAME>"}, about: "Create resources of files, or replace those that exist.", options: join(ofFiles, ofAll), byFile: true, checked: true, run: (*command).apply},
		{name: "patch", usages: []string{"<KIND> <NAME> --patch=<PATCH>"}, about: "Change fields of a resource.", options: join([]option{{name: "patch", short: "p", value: "PATCH", help: "the fields, as JSON"}, {name: "type", short: "t", value: "TYPE", def: "strategic", help: "strategic, merge or json"}, optNamespace}, ofAll), least: 2, most: 2, checked: true, run: (*command).patch},
		{name: "delete", usages: []string{"<KIND> <NAME>...", "--filename=<FILENAME>"}, about: "Delete resources by name, or those of files.", options: join(ofFiles, []option{{name: "skip-not-exists", short: "s", help: "it is no error if a resource does not exist"}}, ofAll), byFile: true, least: 1, most: -1, checked: true, run: (*command).remove},
		{name: "get", usages: []string{"<KIND> [<NAME>...]", "--filename=<FILENAME>"}, about: "Print resources.", options: join(ofFiles, []option{
			{name: "output", short: "o", value: "OUTPUT", def: "ps", help: "ps, wide, yaml, json, name, custom-columns=…, go-template=… or go-template-file=…"},
			{name: "all-namespaces", short: "A", help: "of all namespaces"},
			{name: "export", help: "without what belongs to this cluster"},
		}, ofAll), byFile: true, least: 1, most: -1, checked: true, run: (*command).get},
		{name: "label", usages: []string{"<KIND> <NAME> <key>=<value> [--overwrite]", "<KIND> <NAME> <key> --remove"}, about: "Set or remove a label of a resource.", options: join([]option{{name: "overwrite", help: "change a label that has another value"}, {name: "remove", help: "remove it"}, optNamespace}, ofAll), least: 3, most: 3, checked: true, run: (*command).label},
		{name: "validate", usages: []string{"--filename=<FILENAME>"}, about: "Check files without a datastore.", options: join([]option{optFile, optRecursive, optSkipEmpty}, ofAll), byFile: true, run: (*command).validate},
		{name: "optimize", usages: []string{"--filename=<FILENAME>"}, about: "Check files without a datastore, and print them; no policy is split.", options: join([]option{optFile, optRecursive, optSkipEmpty}, ofAll), byFile: true, run: (*command).optimize},
		{name: "convert", usages: []string{"--filename=<FILENAME>"}, about: "Print resources of version 1, and Kubernetes' network policies, as resources of version 3.", options: join([]option{optFile, {name: "output", short: "o", value: "OUTPUT", def: "yaml", help: "yaml or json"}, {name: "ignore-validation", help: "also what is not valid"}}, ofAll), byFile: true, run: (*command).convert},
		{name: "ipam check", about: "Find addresses that are in use twice, or by nobody.", options: join([]option{{name: "show-all-ips", help: "print all addresses"}, {name: "show-problem-ips", help: "print what is wrong with which address"}, {name: "output", short: "o", value: "FILE", help: "write a report to a file"}, optKubeconfig}, ofAll), checked: true, run: (*command).ipamCheck},
		{name: "ipam show", about: "Show how full pools are.", options: join([]option{{name: "ip", value: "IP", help: "who has this address"}, {name: "show-blocks", help: "blocks too"}, {name: "show-borrowed", help: "addresses of others' blocks"}, {name: "show-configuration", help: "the settings"}}, ofAll), checked: true, run: (*command).ipamShow},
		{name: "ipam release", about: "Release an address, or those of reports.", options: join([]option{{name: "ip", value: "IP", help: "the address"}, {name: "from-report", value: "REPORT", many: true, help: "a report of ipam check; of several, what all name is released"}, {name: "force", help: "although it is of another version, or the datastore is not locked"}}, ofAll), checked: true, run: (*command).ipamRelease},
		{name: "ipam configure", about: "Change the settings of addresses.", options: join([]option{{name: "strictaffinity", value: "true/false", help: "nodes do not borrow"}, {name: "max-blocks-per-host", value: "N", help: "of a family"}, {name: "ip-cooldown-seconds", value: "N", help: "for which a released address is not given out"}, {name: "kubevirt-ip-persistence", value: "Enabled/Disabled", help: "of virtual machines"}}, ofAll), checked: true, run: (*command).ipamConfigure},
		{name: "ipam split", usages: []string{"<NUMBER> --cidr=<CIDR>", "<NUMBER> --name=<POOL_NAME>", "<CIDR> <NUMBER>"}, about: "Split a pool into smaller ones; the datastore must be locked.", options: join([]option{{name: "cidr", value: "CIDR", help: "of the pool"}, {name: "name", value: "POOL_NAME", help: "of the pool"}}, ofAll), least: 1, most: 2, checked: true, run: (*command).ipamSplit},
		{name: "node status", about: "Show whether the agent runs, and its BGP sessions.", options: ofAll, run: (*command).nodeStatus},
		{name: "node checksystem", about: "Check that the kernel can do what is needed.", options: join([]option{{name: "kernel-config", short: "f", value: "kernel-config", help: "accepted: the kernel itself is asked"}}, ofAll), run: (*command).nodeCheck},
		{name: "node diags", about: "Collect what is needed to find a fault.", options: join([]option{{name: "log-dir", value: "LOG_DIR", help: "where logs are"}}, ofAll), run: (*command).nodeDiags},
		{name: "node run", about: "Have this host run a node at each boot, or run one in the foreground.", options: ofAll, run: (*command).nodeRun},
		{name: "cluster diags", about: "Collect what is needed to find a fault of a cluster.", options: join([]option{
			{name: "since", value: "SINCE", help: "only what was logged since then: 90s, 10m, 5h"},
			{name: "max-logs", value: "MAXLOGS", def: "5", help: "pods of each DaemonSet, Deployment and StatefulSet"},
			{name: "focus-nodes", value: "NODES", help: "nodes whose pods are taken first, with commas between them"},
			{name: "max-parallelism", value: "MAXPARALLELISM", def: "10", help: "accepted, and changes nothing: one is collected after the other"},
			{name: "skip-temp-dir-cleanup", help: "accepted, and changes nothing: there is no such directory"},
		}, ofAll), run: (*command).clusterDiags},
		{name: "datastore migrate lock", about: "Freeze the cluster.", options: ofAll, checked: true, run: (*command).lock},
		{name: "datastore migrate unlock", about: "Go on.", options: ofAll, checked: true, run: (*command).unlock},
		{name: "datastore migrate export", about: "Write the whole datastore to standard output; it must be locked.", options: ofAll, checked: true, run: (*command).export},
		{name: "datastore migrate import", about: "Put an export into Kubernetes' API.", options: join([]option{optFile}, ofAll), byFile: true, run: (*command).importAll},
		{name: "datastore migrate-policy-names", about: "Store policies of versions before v3.32 under the names that get shows.", options: ofAll, checked: true, run: (*command).policyNames},
		{name: "version", about: "Print versions.", options: join([]option{{name: "poll", value: "POLL", help: "ask again at this interval"}, {name: "client", help: "this binary's only"}}, ofAll), run: (*command).version},
	}
}

// lookup finds the command that words begin with; words are those that name it, or what was taken for that.
func lookup(args []string) (v verb, words []string, ok bool) {
	for _, v := range verbs() {
		name := strings.Fields(v.name)
		if len(args) >= len(name) && slices.Equal(args[:len(name)], name) {
			return v, name, true
		}
	}
	words = args[:min(1, len(args))]
	for _, v := range verbs() {
		if strings.HasPrefix(v.name, strings.Join(words, " ")+" ") {
			return v, args[:min(len(strings.Fields(v.name)), len(args))], false
		}
	}
	return v, words, false
}

// top is what stands before the command.
type top struct {
	help, version, mismatch bool
	logLevel, context       string
}

// invalidOption is a call that the grammar does not have.
type invalidOption struct {
	text  string
	first bool // before the command
}

// Error is what calicoctl prints.
func (e *invalidOption) Error() string {
	return "Invalid option: '" + e.text + "'. Use flag '--help' to read about a specific subcommand."
}

func parseTop(args []string) (t top, rest []string, err error) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.BoolVarP(&t.help, "help", "h", false, "")
	f.BoolVar(&t.version, "version", false, "")
	f.StringVarP(&t.logLevel, "log-level", "l", "panic", "")
	f.StringVar(&t.context, "context", "", "")
	f.BoolVar(&t.mismatch, optMismatch.name, false, "")
	f.Usage = func() {}
	if err := f.Parse(args); err != nil || f.NArg() == 0 && !t.help && !t.version {
		return t, nil, &invalidOption{strings.Join(args, " "), true}
	}
	return t, f.Args(), nil
}

// parsed are the arguments of a command.
type parsed struct {
	help  bool
	flags *pflag.FlagSet
	words []string
}

func (p parsed) text(name string) string { return p.textOr(name, "") }

func (p parsed) textOr(name, otherwise string) string {
	if f := p.flags.Lookup(name); f != nil && f.Value.String() != "" && f.Value.Type() != "bool" {
		return f.Value.String()
	}
	return otherwise
}

func (p parsed) has(name string) bool {
	f := p.flags.Lookup(name)
	return f != nil && f.Changed && f.Value.String() != "false"
}

// word is the argument at a place; empty: there is none.
func (p parsed) word(at int) string {
	if at < len(p.words) {
		return p.words[at]
	}
	return ""
}

func (v verb) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	if v.name == "node run" {
		noderun.AddFlags(f)
	}
	for _, o := range v.options {
		if o.value == "" {
			f.BoolP(o.name, o.short, false, o.help)
			continue
		}
		f.VarP(&flags.Value{Text: o.def, Many: o.many}, o.name, o.short, "<"+o.value+"> "+o.help)
	}
	return f
}

// parse reads the arguments of a command whose name has so many words.
func (v verb) parse(args []string, words int) (p parsed, err error) {
	bad := &invalidOption{text: "calicoctl " + strings.Join(args, " ")}
	p.flags = v.flags()
	p.flags.BoolVarP(&p.help, "help", "h", false, "")
	p.flags.Usage = func() {}
	rest := slices.Clone(args[words:])
	if v.name == "get" {
		for i := range rest {
			if rest[i] == "-a" { // its older name
				rest[i] = "-A"
			}
		}
	}
	if err := p.flags.Parse(rest); err != nil {
		return p, bad
	}
	p.words = p.flags.Args()
	file := p.has(optFile.name)
	switch n := len(p.words); {
	case p.help:
	case v.byFile && file && n > 0, v.byFile && !file && n == 0:
		return p, bad
	case v.byFile && file:
	case n < v.least, v.most >= 0 && n > v.most:
		return p, bad
	}
	return p, nil
}

// usage is the help of a command.
func (v verb) usage() string {
	var b strings.Builder
	fmt.Fprintln(&b, "Usage:")
	for _, u := range v.usages {
		fmt.Fprintf(&b, "  calicoctl %s %s [options]\n", v.name, u)
	}
	if len(v.usages) == 0 {
		fmt.Fprintf(&b, "  calicoctl %s [options]\n", v.name)
	}
	fmt.Fprintf(&b, "\n%s\n\nOptions:\n%s", v.about, v.flags().FlagUsages())
	return b.String()
}

// usage is the help of the whole.
func usage() string {
	var b strings.Builder
	fmt.Fprint(&b, "Usage:\n  calicoctl [options] <command> [<args>...]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(&b, "    %-26s %s\n", v.name, v.about)
	}
	fmt.Fprint(&b, "\nOptions:\n  -h --help                    Show this.\n  -l --log-level=<level>       panic, fatal, error, warn, info or debug (default panic)\n"+
		"     --context=<context>       Context of the kubeconfig.\n     --allow-version-mismatch  Do not ask which version the cluster has.\n\n"+
		"This is twill under the name of calicoctl. 'calicoctl <command> --help' says more of a command.\n")
	return b.String()
}
