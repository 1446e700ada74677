package cache

import "fmt"

// Memory is the budget of a device: pools of numbered blocks and slots, and who holds each. Numbers of a pool
// are dense: an engine may lay units out as an array that grows.
type Memory struct {
	layout Layout
	budget int64
	used   int64
	pools  []pool
}

// pool counts the holders of each unit. A unit is idle when nobody but the prefix tree holds it.
type pool struct {
	bytes int64
	limit int     // the largest number of units, by the budget or by the caller
	refs  []int32 // for each unit, how many hold it, the tree included; 0: free
	held  []int32 // for each unit, how many of these are entries of the tree
	free  []int32 // the numbers of free units below len(refs); the last one is used first
	inUse int
	idle  int
}

// Unit names one block or slot.
type Unit struct {
	Pool Pool
	ID   int32
}

// NewMemory returns empty pools for budget bytes. limits, which may be nil, bounds the number of units of
// each pool; 0 there means as many as the budget has room for.
func NewMemory(l Layout, budget int64, limits Demand) (*Memory, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if budget < 0 {
		return nil, fmt.Errorf("cache memory: the budget is %d bytes, want 0 or more", budget)
	}
	if limits != nil && len(limits) != l.Pools() {
		return nil, fmt.Errorf("cache memory: %d limits for %d pools", len(limits), l.Pools())
	}
	m := &Memory{layout: l, budget: budget, pools: make([]pool, l.Pools())}
	for i := range m.pools {
		b := l.UnitBytes(Pool(i))
		if b == 0 {
			continue
		}
		m.pools[i] = pool{bytes: b, limit: int(min(budget/b, 1<<31-1))}
		if limits != nil && limits[i] > 0 {
			m.pools[i].limit = min(m.pools[i].limit, limits[i])
		}
	}
	return m, nil
}

// Layout returns what the units hold.
func (m *Memory) Layout() Layout { return m.layout }

// Budget returns the bytes that all units together may have.
func (m *Memory) Budget() int64 { return m.budget }

// Used returns the bytes of all units that somebody holds.
func (m *Memory) Used() int64 { return m.used }

// Idle returns the bytes of the units that only the prefix tree holds.
func (m *Memory) Idle() int64 {
	var sum int64
	for _, p := range m.pools {
		sum += int64(p.idle) * p.bytes
	}
	return sum
}

// Pressure returns how much of the memory is held by others than the prefix tree, 0 to 1: of its bytes, or of the units
// of a pool where that is more.
func (m *Memory) Pressure() float64 {
	most := float64(m.used-m.Idle()) / float64(max(m.budget, 1))
	for _, p := range m.pools {
		most = max(most, float64(p.inUse-p.idle)/float64(max(p.limit, 1)))
	}
	return most
}

// InUse returns the number of units of each pool that somebody holds.
func (m *Memory) InUse() Demand {
	d := make(Demand, len(m.pools))
	for i, p := range m.pools {
		d[i] = p.inUse
	}
	return d
}

// Holders returns how many tables and entries of the tree hold a unit; 0: it is free, or was never used.
func (m *Memory) Holders(u Unit) int {
	if p := &m.pools[u.Pool]; int(u.ID) < len(p.refs) {
		return int(p.refs[u.ID])
	}
	return 0
}

// Fits reports whether d units can be had now.
func (m *Memory) Fits(d Demand) bool {
	for i, n := range d {
		if m.pools[i].inUse+n > m.pools[i].limit {
			return false
		}
	}
	return m.used+m.layout.Bytes(d) <= m.budget
}

// FitsIdle reports whether d units could be had if the prefix tree gave back all that only it holds.
func (m *Memory) FitsIdle(d Demand) bool {
	for i, n := range d {
		if m.pools[i].inUse-m.pools[i].idle+n > m.pools[i].limit {
			return false
		}
	}
	return m.used-m.Idle()+m.layout.Bytes(d) <= m.budget
}

// FitsEmpty reports whether d units fit into the whole budget.
func (m *Memory) FitsEmpty(d Demand) bool {
	for i, n := range d {
		if n > m.pools[i].limit {
			return false
		}
	}
	return m.layout.Bytes(d) <= m.budget
}

// CheckpointsBeside returns how many checkpoints, which share nothing, fit into an empty memory beside d and into limit
// bytes. It is 0 for layouts without checkpoints.
func (m *Memory) CheckpointsBeside(d Demand, limit int64) int {
	l := m.layout
	if !l.Checkpoints() {
		return 0
	}
	one := l.checkpoint()
	n := min(limit, m.budget-l.Bytes(d)) / max(1, l.Bytes(one))
	for i, units := range one {
		if units > 0 {
			n = min(n, int64((m.pools[i].limit-d[i])/units))
		}
	}
	return int(max(0, n))
}

// allot returns a unit with one holder. The caller has asked Fits before.
func (m *Memory) allot(at Pool) int32 {
	p := &m.pools[at]
	if p.inUse >= p.limit || m.used+p.bytes > m.budget {
		panic(fmt.Sprintf("cache: pool %d has %d units of %d, %d bytes of %d: a call took more than it asked for",
			at, p.inUse, p.limit, m.used, m.budget))
	}
	p.inUse++
	m.used += p.bytes
	if n := len(p.free); n > 0 {
		id := p.free[n-1]
		p.free = p.free[:n-1]
		p.refs[id] = 1
		return id
	}
	p.refs = append(p.refs, 1)
	p.held = append(p.held, 0)
	return int32(len(p.refs) - 1)
}

// change moves the counts of a unit that has a holder, and frees it with its last one.
func (m *Memory) change(at Pool, id, refs, held int32) {
	p := &m.pools[at]
	if p.refs[id] <= 0 {
		panic(fmt.Sprintf("cache: unit %d of pool %d is free and was used again", id, at))
	}
	if p.refs[id] == p.held[id] {
		p.idle--
	}
	p.refs[id] += refs
	p.held[id] += held
	switch {
	case p.held[id] < 0 || p.held[id] > p.refs[id]:
		panic(fmt.Sprintf("cache: unit %d of pool %d has %d holders, %d of the tree", id, at, p.refs[id], p.held[id]))
	case p.refs[id] == 0:
		p.free = append(p.free, id)
		p.inUse--
		m.used -= p.bytes
	case p.refs[id] == p.held[id]:
		p.idle++
	}
}

func (m *Memory) retain(at Pool, id int32)  { m.change(at, id, 1, 0) }
func (m *Memory) release(at Pool, id int32) { m.change(at, id, -1, 0) }

// hold and unhold count the tree as a holder.
func (m *Memory) hold(at Pool, id int32)   { m.change(at, id, 1, 1) }
func (m *Memory) unhold(at Pool, id int32) { m.change(at, id, -1, -1) }

// shared reports whether somebody else holds the unit too.
func (m *Memory) shared(at Pool, id int32) bool { return m.pools[at].refs[id] > 1 }

// isIdle reports whether only the tree holds the unit.
func (m *Memory) isIdle(at Pool, id int32) bool { return m.pools[at].refs[id] == m.pools[at].held[id] }
