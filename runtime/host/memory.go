package host

// Memory is the main memory in bytes; what the system does not say is 0.
type Memory struct {
	Total int64 `json:"total"`
	// Available is the memory that programs can use without swapping.
	Available int64 `json:"available"`
	// Limit is the memory that a container or a limit of the process (ulimit -v, a job of Windows) allows, if that is
	// less than Total.
	Limit int64 `json:"limit,omitempty"`
}

// Usable returns the memory that a model can count on: the available memory within the limit, as far as known.
func (m Memory) Usable() int64 {
	n := m.Available
	if n == 0 {
		n = m.Total
	}
	if m.Limit > 0 && (n == 0 || m.Limit < n) {
		n = m.Limit
	}
	return n
}

// limit notes a further limit in bytes, 0 for none.
func (m *Memory) limit(n int64) {
	if n > 0 && (m.Total == 0 || n < m.Total) && (m.Limit == 0 || n < m.Limit) {
		m.Limit = n
	}
}
