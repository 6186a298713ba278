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

// maxBoots bounds a script that asks for a reboot each time.
const maxBoots = 5

// patience is how long the machine may take, each time that it is booted. It is for one that hangs.
const patience = 20 * time.Minute

func main() {
	twill := flag.String("twill", "bin/twill", "the binary that hosts of scenarios run")
	tests := flag.String("test", "", "a folder of test programs (go test -c), each run by itself")
	script := flag.String("script", "", "a script to run under systemd, in place of tests and scenarios; what follows are files that it needs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	files, err := machineFiles(*twill, *tests, flag.Args())
	if *script != "" {
		files, err = map[string]string{"check": *script}, nil
		for _, f := range flag.Args() {
			files[filepath.Base(f)] = f
		}
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
	vm := machine{img: img, share: share, work: work, first: "init=" + initPath}
	if systemd {
		// What the machine writes is there after a reboot: its disk is a copy.
		vm.first, vm.disk = "systemd.unit="+filepath.Base(targetPath), filepath.Join(work, "disk")
		if out, err := exec.CommandContext(ctx, "cp", "--sparse=always", img.root, vm.disk).CombinedOutput(); err != nil {
			return fmt.Errorf("copy the image: %w: %s", err, out)
		}
	}
	began := time.Now()
	result, err := vm.boot(ctx)
	for boots := 1; err == nil && bytes.Contains(result, []byte("vm: reboot")); boots++ {
		if boots == maxBoots {
			return fmt.Errorf("the script wants the machine to be booted more than %d times", maxBoots)
		}
		result, err = vm.boot(ctx)
	}
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

type machine struct {
	img         image
	share, work string // the second disk; a folder for what is only here while it runs
	disk        string // the first, which is written; empty: the image's, of which nothing is kept
	first       string // of the kernel's arguments, that which says what is run
}

// boot runs the machine until it ends, or wants to be booted again, and returns its output, which is printed, too.
func (m machine) boot(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	console := filepath.Join(m.work, "console")
	disk := "file=" + m.img.root + ",snapshot=on"
	if m.disk != "" {
		disk = "file=" + m.disk
	}
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2",
		"-nodefaults", "-display", "none", "-no-reboot", "-kernel", m.img.kernel,
		"-append", "console=ttyS0 quiet root=/dev/nvme0n1 rw panic=-1 nokaslr mitigations=off "+m.first,
		"-serial", "file:"+console, "-serial", "stdio",
		"-drive", disk+",format=raw,if=none,id=root,cache=unsafe", "-device", "nvme,drive=root,serial=root",
		"-drive", "file="+m.share+",format=raw,if=none,id=share,readonly=on", "-device", "nvme,drive=share,serial=share")
	qemu.Env = append(os.Environ(), "TMPDIR="+m.work) // where what the machine writes is kept while it runs
	var output bytes.Buffer
	qemu.Stdout, qemu.Stderr = io.MultiWriter(os.Stdout, &output), os.Stderr
	if err := qemu.Run(); err != nil {
		last, _ := os.ReadFile(console)
		return nil, fmt.Errorf("qemu: %w; the console's end:\n%s", err, last[max(0, len(last)-2000):])
	}
	if !bytes.Contains(output.Bytes(), []byte("vm: ")) {
		last, _ := os.ReadFile(console)
		fmt.Fprintf(os.Stderr, "the console's end:\n%s\n", last[max(0, len(last)-2000):])
	}
	return output.Bytes(), nil
}
