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

// pack writes a tar of what the machine runs, which it reads from a disk.
func pack(file, twill, tests string, scripts []string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	add := func(name string, b []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(b))}); err != nil {
			return err
		}
		_, err := w.Write(b)
		return err
	}
	files := map[string]string{"twill": twill}
	for _, s := range scripts {
		files[path.Join("scripts", filepath.Base(s))] = s
	}
	if tests != "" {
		programs, err := filepath.Glob(filepath.Join(tests, "*"))
		if err != nil || len(programs) == 0 {
			return fmt.Errorf("no test programs in %s", tests)
		}
		for _, p := range programs {
			files[path.Join("tests", filepath.Base(p))] = p
		}
	}
	if err := add("check", []byte(check)); err != nil {
		return err
	}
	for name, from := range files {
		b, err := os.ReadFile(from)
		if err == nil {
			err = add(name, b)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}
