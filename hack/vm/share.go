package main

import (
	"archive/tar"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// check is what the machine runs, in the folder of what is given to it.
const check = `failed=0
export REQUIRE_ROOT=1 REQUIRE_KERNEL=1
for t in tests/*; do
	[ -e "$t" ] || continue
	echo "vm: $t"
	"$t" -test.count=1 || failed=1
done
set -- scripts/*.txt
if [ -e "$1" ]; then ./twill lab run --bundle /tmp/bundle "$@" || failed=1; fi
for f in /tmp/bundle/*/failure.txt /tmp/bundle/*/steps.txt /tmp/bundle/*/*/node.log; do
	[ -e "$f" ] && echo "vm: $f" && tail -n 30 "$f"
done
exit $failed
`

// machineFiles are check, the binary, the test programs in a folder, and scenarios, by their names in the machine.
func machineFiles(twill, tests string, scripts []string) (map[string]string, error) {
	files := map[string]string{"check": "", "twill": twill}
	for _, s := range scripts {
		files[path.Join("scripts", filepath.Base(s))] = s
	}
	if tests == "" {
		return files, nil
	}
	programs, err := filepath.Glob(filepath.Join(tests, "*"))
	if err != nil || len(programs) == 0 {
		return nil, fmt.Errorf("no test programs in %s", tests)
	}
	for _, p := range programs {
		files[path.Join("tests", filepath.Base(p))] = p
	}
	return files, nil
}

// pack writes a tar of what the machine reads from a disk: files by their names in it. The one without a path is check, as it is above.
func pack(file string, files map[string]string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for name, from := range files {
		b := []byte(check)
		if from != "" {
			if b, err = os.ReadFile(from); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(b))}); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}
