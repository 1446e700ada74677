package diff

import "slices"

// maxTable bounds the cells of the table of one exact alignment, of 4 bytes each.
const maxTable = 1 << 22

// pair is a line of either text that correspond.
type pair struct{ a, b int }

// align pairs equal elements of a and b in increasing order. It is a patience diff: elements that are unique
// in both are anchors (the longest increasing run of them), what is between them is aligned in the same way,
// and where there are none by a longest common subsequence. Only stretches too large for that table, without
// an anchor, are left unpaired; so time and memory are bounded.
func align(a, b []string) []pair {
	var out []pair
	alignRange(a, b, 0, 0, &out)
	return out
}

// alignRange aligns a and b, which begin at the given places of the whole.
func alignRange(a, b []string, atA, atB int, out *[]pair) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		*out = append(*out, pair{atA, atB})
		a, b, atA, atB = a[1:], b[1:], atA+1, atB+1
	}
	tail := 0
	for tail < min(len(a), len(b)) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	endA, endB := len(a)-tail, len(b)-tail
	alignMiddle(a[:endA], b[:endB], atA, atB, out)
	for i := range tail {
		*out = append(*out, pair{atA + endA + i, atB + endB + i})
	}
}

func alignMiddle(a, b []string, atA, atB int, out *[]pair) {
	if len(a) == 0 || len(b) == 0 {
		return
	}
	anchors := uniqueInBoth(a, b)
	if len(anchors) == 0 {
		if len(a) <= maxTable/len(b) {
			commonSubsequence(a, b, atA, atB, out)
		}
		return
	}
	i, j := 0, 0
	for _, p := range anchors {
		alignRange(a[i:p.a], b[j:p.b], atA+i, atB+j, out)
		*out = append(*out, pair{atA + p.a, atB + p.b})
		i, j = p.a+1, p.b+1
	}
	alignRange(a[i:], b[j:], atA+i, atB+j, out)
}

// uniqueInBoth returns the longest run, increasing in both, of the elements that both have exactly once.
func uniqueInBoth(a, b []string) []pair {
	type place struct{ count, at int }
	in := map[string]place{}
	for j, s := range b {
		in[s] = place{in[s].count + 1, j}
	}
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	var unique []pair
	for i, s := range a {
		if count[s] == 1 && in[s].count == 1 {
			unique = append(unique, pair{i, in[s].at})
		}
	}
	// Longest increasing subsequence of b: last[k] is the smallest end of a run of k+1.
	var last []int
	before := make([]int, len(unique))
	for i, p := range unique {
		k, _ := slices.BinarySearchFunc(last, p.b, func(at, b int) int { return unique[at].b - b })
		before[i] = -1
		if k > 0 {
			before[i] = last[k-1]
		}
		if k == len(last) {
			last = append(last, i)
		} else {
			last[k] = i
		}
	}
	if len(last) == 0 {
		return nil
	}
	run := make([]pair, len(last))
	for k, i := len(last)-1, last[len(last)-1]; k >= 0; k, i = k-1, before[i] {
		run[k] = unique[i]
	}
	return run
}

// commonSubsequence pairs a longest common subsequence, by the textbook table.
func commonSubsequence(a, b []string, atA, atB int, out *[]pair) {
	width := len(b) + 1
	length := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			*out = append(*out, pair{atA + i, atB + j})
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
}
