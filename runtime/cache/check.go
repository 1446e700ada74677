package cache

import "fmt"

// Check recounts everything and returns an error that names the first count which is wrong. tables are all
// that are open, p the tree or nil. It is for tests; its time grows with all that is held.
func Check(m *Memory, p *Prefix, tables ...*Table) error {
	refs := map[Unit]int32{}
	held := map[Unit]int32{}
	for i, t := range tables {
		if err := t.check(); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
		t.each(func(at Pool, id int32) { refs[Unit{at, id}]++ })
	}
	if p != nil {
		if err := p.check(func(at Pool, id int32) { refs[Unit{at, id}]++; held[Unit{at, id}]++ }); err != nil {
			return err
		}
	}
	var used int64
	for i := range m.pools {
		n, err := m.pools[i].check(Pool(i), refs, held)
		if err != nil {
			return err
		}
		used += n
	}
	if used != m.used || used > m.budget {
		return fmt.Errorf("%d bytes are in use, %d are booked, the budget is %d", used, m.used, m.budget)
	}
	return nil
}

// check recounts pool number at. refs has the number of holders of each unit, and held the number of those holders that
// belong to the prefix tree. check returns an error where a count of the pool is another, else the bytes of the units
// in use.
func (p *pool) check(at Pool, refs, held map[Unit]int32) (int64, error) {
	inUse, idle := 0, 0
	for id := range p.refs {
		u := Unit{at, int32(id)}
		if p.refs[id] != refs[u] || p.held[id] != held[u] {
			return 0, fmt.Errorf("unit %d of pool %d is booked for %d holders and %d of the tree, it has %d and %d",
				id, at, p.refs[id], p.held[id], refs[u], held[u])
		}
		if refs[u] > 0 {
			inUse++
			if refs[u] == held[u] {
				idle++
			}
		}
	}
	if inUse != p.inUse || idle != p.idle || len(p.free)+inUse != len(p.refs) || inUse > p.limit {
		return 0, fmt.Errorf("pool %d has %d units in use, %d idle, %d free of %d; booked are %d and %d, the "+
			"limit is %d",
			at, inUse, idle, len(p.free), len(p.refs), p.inUse, p.idle, p.limit)
	}
	return int64(inUse) * p.bytes, nil
}

// check compares what the table holds with what its positions need.
func (t *Table) check() error {
	if t.closed {
		return nil
	}
	l := t.mem.layout
	end := l.blocksFor(t.pos + t.inCall)
	if l.BlockBytes > 0 && len(t.blocks) != end {
		return fmt.Errorf("%d blocks for %d positions and %d rows, want %d", len(t.blocks), t.pos, t.inCall, end)
	}
	for i, r := range t.rings {
		if len(r.Blocks) > 0 && (r.First > l.ringFirst(i, t.pos) || r.First+len(r.Blocks) != end) ||
			len(r.Blocks) == 0 && l.ringFirst(i, t.pos) < end {
			return fmt.Errorf("ring %d has blocks %d to %d at position %d with %d rows", i, r.First,
				r.First+len(r.Blocks), t.pos, t.inCall)
		}
	}
	last := -1
	for _, s := range t.states {
		if s.Pos <= last {
			return fmt.Errorf("states %v do not ascend", t.states)
		}
		last = s.Pos
	}
	if l.SlotBytes > 0 && t.pos+t.inCall > 0 && t.stateAt(t.pos+t.inCall) < 0 {
		return fmt.Errorf("no state at position %d with %d rows: %v", t.pos, t.inCall, t.states)
	}
	return nil
}

// check walks the tree, calls f with every unit that an entry holds, and compares the lists.
func (p *Prefix) check(f func(Pool, int32)) error {
	place := map[*node]int{}
	for e := p.nodes.Front(); e != nil; e = e.Next() {
		place[e.Value.(*node)] = len(place)
	}
	nodes, marks, spare := 0, 0, 0
	var visit func(n *node) error
	visit = func(n *node) error {
		if n.block >= 0 {
			f(BlockPool, n.block)
		}
		if n.mark != nil {
			if marks++; n.mark.spare {
				spare++
			}
			n.mark.each(p.mem.layout, f)
		}
		if n.parent != nil {
			nodes++
			at, ok := place[n]
			if up, listed := place[n.parent]; !ok || listed && up > at {
				return fmt.Errorf("prefix tree: the node at %d is used later than its parent, or not listed", n.pos)
			}
			if len(n.children) == 0 && n.mark == nil && p.mem.layout.Checkpoints() {
				return fmt.Errorf("prefix tree: the leaf at %d has no checkpoint", n.pos)
			}
		}
		for k, c := range n.children {
			if c.parent != n || c.key != k || c.pos != n.pos+len(k)/4 {
				return fmt.Errorf("prefix tree: the node at %d is filed under other ids", c.pos)
			}
			if err := visit(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(p.root); err != nil {
		return err
	}
	if nodes != p.nodes.Len() || marks-spare != p.marks.Len() || spare != p.spare.Len() || spare > p.most {
		return fmt.Errorf("prefix tree: %d nodes, %d checkpoints and %d spare ones; listed are %d, %d and %d, at most "+
			"%d spare ones", nodes, marks-spare, spare, p.nodes.Len(), p.marks.Len(), p.spare.Len(), p.most)
	}
	return nil
}
