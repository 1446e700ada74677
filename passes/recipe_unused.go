package passes

// Unused returns the rules of a recipe that decided about no weight of a report, as the recipe's text writes them:
// their patterns match no name, or rules before them matched first.
func (r Recipe) Unused(report *Report) []string {
	used := map[*Rule]bool{}
	for _, w := range report.Weights {
		if rule := r.rule(w.Kind, w.Name); rule != nil {
			used[rule] = true
		}
	}
	var out []string
	for i := range r.Rules {
		if !used[&r.Rules[i]] {
			out = append(out, r.Rules[i].text(0))
		}
	}
	return out
}
