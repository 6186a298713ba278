package config

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the page about all parameters, as Markdown.
func Reference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# Settings of the agent

Printed by ` + "`twill config params`" + `; a test keeps this page equal to it.

A setting is taken from, later ones win: its default; the file ` + "`/etc/twill/twill.conf`" + ` (lines of ` + "`name = value`" + `; ` + "`--config`" + ` or
` + "`TWILL_CONFIG`" + ` names another; upstream's ` + "`felix.cfg`" + ` is understood); the environment; the command line; and the FelixConfiguration
resources ` + "`default`" + `, then those whose nodeSelector selects the node, the oldest last, then ` + "`node.<name>`" + `. Their annotations ` + "`config.projectcalico.org/NAME`" + ` are settings, too, and win over the same resource's fields, as with Calico. In the environment a name is
` + "`TWILL_`" + ` and the setting's name in any case, with or without underscores (` + "`TWILL_REPORTING_INTERVAL`" + `); upstream's ` + "`FELIX_…`" + ` names work
too and yield to these; the general names below (` + "`NODENAME`" + `, ` + "`ETCD_ENDPOINTS`" + `) yield to both. A duration is a number with a unit,
or a bare number of seconds.

A value that is wrong is reported (log, ` + "`twill config`" + `, ` + "`twill status`" + `) and passed over: the next source below counts.
So it does for an empty one in the file or in the environment (` + "`NODENAME=`" + `, as templates leave them), which is not reported; where a setting may be off, ` + "`none`" + ` turns it off.

Under upstream's names (` + "`calico-node`, `calico-felix`" + `), or with ` + "`TWILL_SETTINGS_ORDER=local-last`" + `, file, environment and command line win over FelixConfigurations.

` + "`twill config`" + ` prints what is in effect on a node, and where each value came from. On the node itself it asks the agent
for what its file, environment and command line say, which a shell's environment need not.

## Live settings

A change is in force at once: nothing is restarted and no packet is lost. What policy depends on changes in the same kernel
transaction as policy.

| setting | default | values | what it does |
|---|---|---|---|
`)
	for _, p := range params {
		if p.Fixed == "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, code(p.Default), p.Type, p.Help)
		}
	}
	b.WriteString(`
## Settings that need a restart of the agent

These cannot come from a FelixConfiguration either. A restart loses no packet.

| setting | default | values | what it does | other names in the environment | why not live |
|---|---|---|---|---|---|
`)
	for _, p := range params {
		if p.Fixed != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", p.Name, code(p.Default), p.Type, p.Help, code(strings.Join(p.Env, "`, `")), p.Fixed)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func code(s string) string {
	if s == "" {
		return "–"
	}
	return "`" + s + "`"
}
