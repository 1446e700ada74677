package command

import "github.com/spf13/cobra"

// addDeterministic adds --deterministic.
func (f *modelFlags) addDeterministic(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.deterministic, "deterministic", false,
		"compute each row alike, whatever other rows share its call, however a prompt is cut and whatever is cached: "+
			"the same bits alone and among others, in more time")
}

// undetermined names what was asked for that --deterministic does not go with: what needs a session, not a sequence.
func (f *runFlags) undetermined(cmd *cobra.Command, args []string) string {
	for _, flag := range []string{"logits", "force-tokens", "session"} {
		if cmd.Flags().Changed(flag) {
			return "--" + flag
		}
	}
	switch {
	case f.keepsChat(cmd, args):
		return "a chat"
	case f.sampler == "file" && cmd.Flags().Changed("sampler"):
		return "--sampler file"
	}
	return ""
}
