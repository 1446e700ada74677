package command

import (
	"fmt"
	"math"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen/cache"
)

func newCache() *cobra.Command {
	var check, asJSON bool
	var limit string
	cmd := &cobra.Command{
		Use:   "cache DIR",
		Short: "Show, check or shrink a directory of export --cache",
		Long: `cache tells what a directory of etc export --cache holds. --check reads all of it and removes what is
damaged; --max-size removes what has not been used for the longest time.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			most := int64(math.MaxInt64)
			if anyChanged(cmd, "max-size") {
				var err error
				if most, err = parseSize("--max-size", limit); err != nil {
					return err
				}
			}
			if info, err := os.Stat(args[0]); err != nil {
				return err
			} else if !info.IsDir() {
				return usagef("%s is not a directory", args[0])
			}
			c, err := cache.Open(args[0], most)
			if err != nil {
				return err
			}
			look := c.Usage
			if check {
				look = c.Check
			}
			u, err := look()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), u)
			}
			text := fmt.Sprintf("%s: %d entries, %s", args[0], u.Entries, humanize.IBytes(uint64(u.Size)))
			if check {
				text += fmt.Sprintf("; %d damaged ones removed", u.Damaged)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "read all entries and remove damaged ones")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&limit, "max-size", "", "remove entries until so much is left, as 10GiB")
	return cmd
}
