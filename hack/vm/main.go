// Command vm runs programs in a virtual machine with Debian's kernel, for what the kernel of this machine has not.
//
//	vm [-twill BINARY] [-test FOLDER] SCENARIO…
//	vm -script FILE WHAT-IT-NEEDS…
//
// It runs each test program with REQUIRE_ROOT=1 and REQUIRE_KERNEL=1, so that nothing is skipped for what a kernel lacks, and then the scenarios
// with "twill lab run". With -script, systemd is the first process, and runs that script of the shell when all has been started, in a folder with
// those files, and with the argument 0; if it ends with 64, the machine reboots, and the script is run again with 1, and so on. The image is made once, of Debian's packages, and kept in the user's cache directory; nothing that the machine writes
// to it is kept. It is emulated (TCG): where there is /dev/kvm, it may be one that cannot run this kernel.
//
// Exit code: 0 all passed, 1 one failed or there was no verdict.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

// patience is how long the machine may take in all. It is for one that hangs.
const patience = 20 * time.Minute

func main() {
	twill := flag.String("twill", "bin/twill", "the binary that hosts of scenarios run")
	tests := flag.String("test", "", "a folder of test programs (go test -c), each run by itself")
	script := flag.String("script", "", "a script to run under systemd, in place of tests and scenarios; what follows are files that it needs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	files := map[string]string{"check": *script}
	for _, f := range flag.Args() {
		files[filepath.Base(f)] = f
	}
	var err error
	if *script == "" {
		files, err = machineFiles(*twill, *tests, flag.Args())
	}
	if err == nil {
		err = run(ctx, files, *script != "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
	}
}

// run boots a machine with these files in its folder, of which check is what it runs.
func run(ctx context.Context, files map[string]string, systemd bool) error {
	img, err := find(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "twill-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	share := filepath.Join(work, "share.tar")
	if err := pack(share, files); err != nil {
		return fmt.Errorf("pack what the machine runs: %w", err)
	}
	began := time.Now()
	result, err := img.boot(ctx, work, share, systemd)
	if err != nil {
		return err
	}
	fmt.Printf("vm: %s in the machine\n", time.Since(began).Round(time.Second))
	status := regexp.MustCompile(`(?m)^vm: exit (\d+)\r?$`).FindSubmatch(result)
	switch {
	case status == nil:
		return errors.New("the machine ended without a verdict")
	case string(status[1]) != "0":
		return errors.New("something failed in the machine")
	}
	return nil
}

// boot runs the machine until it ends, and returns its output, which is printed, too.
func (i image) boot(ctx context.Context, work, share string, systemd bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	console := filepath.Join(work, "console")
	first, reboot := "init="+initPath, "shutdown"
	if systemd {
		first, reboot = "systemd.unit="+filepath.Base(targetPath), "reset"
	}
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2",
		"-nodefaults", "-display", "none", "-action", "reboot="+reboot, "-kernel", i.kernel,
		"-append", "console=ttyS0 quiet root=/dev/nvme0n1 rw panic=-1 nokaslr mitigations=off "+first,
		"-serial", "file:"+console, "-serial", "stdio",
		"-drive", "file="+i.root+",format=raw,if=none,id=root,snapshot=on,cache=unsafe", "-device", "nvme,drive=root,serial=root",
		"-drive", "file="+share+",format=raw,if=none,id=share,readonly=on", "-device", "nvme,drive=share,serial=share")
	qemu.Env = append(os.Environ(), "TMPDIR="+work) // where what the machine writes is kept while it runs
	var output bytes.Buffer
	qemu.Stdout, qemu.Stderr = io.MultiWriter(os.Stdout, &output), os.Stderr
	if err := qemu.Run(); err != nil {
		last, _ := os.ReadFile(console)
		return nil, fmt.Errorf("qemu: %w; the console's end:\n%s", err, last[max(0, len(last)-2000):])
	}
	if !bytes.Contains(output.Bytes(), []byte("vm: exit ")) {
		last, _ := os.ReadFile(console)
		fmt.Fprintf(os.Stderr, "the console's end:\n%s\n", last[max(0, len(last)-2000):])
	}
	return output.Bytes(), nil
}
