package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
)

// distance returns the number of insertions, deletions, changes and swaps of neighbours that make one word of another.
func distance(a, b string) int {
	previous, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], previous[j-2]+1)
			}
		}
		previous, row = row, next
	}
	return row[len(b)]
}

// nearest returns the name that a mistyped one was probably to be, "" where none is near.
func nearest(typed string, names []string) string {
	best, least := "", max(1, len(typed)/3)+1
	for _, name := range names {
		d := distance(strings.ToLower(typed), strings.ToLower(name))
		if strings.HasPrefix(name, typed) && len(typed) > 2 {
			d = min(d, 1)
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// hint returns a second line of an error of usage: what was probably meant, and where help is.
func hint(cmd *cobra.Command, meant string) string {
	help := cmd.CommandPath() + " --help"
	if meant != "" {
		return fmt.Sprintf("\n     did you mean %s? %s tells more", meant, help)
	}
	return fmt.Sprintf("\n     %s tells more", help)
}

var (
	unknownFlag = regexp.MustCompile(`^unknown flag: --(.+)$`)
	badValue    = regexp.MustCompile(`(?s)^invalid argument "(.*)" for "(?:-., )?--(.+)" flag: .*$`)
)

// wanted says what a flag takes, by the type that pflag gives it.
var wanted = map[string]string{"int": "an integer", "int64": "an integer", "uint64": "an integer of at least 0",
	"float64": "a number", "bool": "true or false",
	"intSlice": "integers, separated by commas", "duration": "a duration, as 90s"}

// flagError returns an error of the flags of a command, with what to do.
func flagError(cmd *cobra.Command, err error) error {
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		meant := nearest(m[1], names)
		if meant != "" {
			meant = "--" + meant
		}
		return usagef("%w%s", err, hint(cmd, meant))
	}
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		if f := cmd.Flags().Lookup(m[2]); f != nil && wanted[f.Value.Type()] != "" {
			return usagef("--%s %q, want %s", m[2], m[1], wanted[f.Value.Type()])
		}
	}
	return usagef("%w%s", err, hint(cmd, ""))
}

// programBeside returns the program in the folder of a file that is not there which was probably meant: the one with
// the nearest name, or the only one; "" where there is none.
func programBeside(path string) string {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.pte"))
	if err != nil || len(files) == 0 {
		return ""
	}
	if len(files) == 1 {
		return files[0]
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if name := nearest(filepath.Base(path), names); name != "" {
		return filepath.Join(filepath.Dir(path), name)
	}
	return ""
}

// argumentsError returns the error of a wrong number of arguments, with what to do.
func argumentsError(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasParent() { // the error names the program already
		meant := ""
		if len(args) > 0 {
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			if meant = nearest(args[0], names); meant != "" {
				meant = cmd.Name() + " " + meant
			}
		}
		return usagef("%w%s", err, hint(cmd, meant))
	}
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if len(args) == 0 {
		if files, _ := filepath.Glob("*.pte"); len(files) > 0 && strings.Contains(cmd.Use, ".pte") {
			return usagef("%s: the file is missing: %s%s", cmd.CommandPath(), usage,
				hint(cmd, cmd.CommandPath()+" "+files[0]))
		}
		return usagef("%s: the argument is missing: %s%s", cmd.CommandPath(), usage, hint(cmd, ""))
	}
	if cmd.Name() == "run" {
		return usagef("%s: %d arguments, expected a file and a prompt: a prompt of several words needs quotes: etc "+
			"run %s %q%s",
			cmd.CommandPath(), len(args), args[0], strings.Join(args[1:], " "), hint(cmd, ""))
	}
	return usagef("%s: %d arguments: %s%s", cmd.CommandPath(), len(args), usage, hint(cmd, ""))
}

// openProgram opens a program. What is a file of another kind is named, with what to do.
func openProgram(path string) (*program.Program, error) {
	p, err := program.Open(path)
	return p, programError(path, err)
}

// programError returns an error of opening a program, with what to do where the file is of another kind or missing.
// Errors of anything else stay as they are.
func programError(path string, err error) error {
	if err == nil {
		return nil
	}
	info, bad := os.Stat(path)
	if bad == nil && info.IsDir() {
		return fmt.Errorf("%s: expected a program (.pte), found a directory; etc export %s makes a program of "+
			"a checkpoint", path, path)
	}
	if errors.Is(bad, os.ErrNotExist) {
		if meant := programBeside(path); meant != "" {
			return fmt.Errorf("%w\n     did you mean %s?", err, meant)
		}
	}
	if !errors.Is(err, container.ErrInvalid) {
		return err
	}
	f, bad := os.Open(path)
	if bad != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := f.Read(head)
	advice := ""
	switch found := outfile.KindOf(head[:n]); found {
	case outfile.Tensors, outfile.GGUF:
		advice = "etc export makes a program of a checkpoint"
	case outfile.Part:
		advice = "etc link puts the parts together"
	case outfile.Session:
		advice = "etc run MODEL.pte --session " + path + " goes on with it"
	}
	if advice == "" {
		return err
	}
	return invalidError{fmt.Errorf("%s: expected a program (.pte), found %s; %s", path,
		outfile.KindOf(head[:n]), advice)}
}
