package devicetest

import "github.com/etc-ml/etc/runtime/gpu/device"

// Counting returns d as a device that adds to submitted one for each sequence of kernels that is submitted.
func Counting(d device.Device, submitted *int) device.Device {
	c := counting{d, submitted}
	if h, ok := d.(device.HostWriter); ok {
		return struct {
			counting
			device.HostWriter
		}{c, h}
	}
	return c
}

type counting struct {
	device.Device
	submitted *int
}

func (c counting) Record(list []device.Dispatch) (device.Sequence, error) {
	s, err := c.Device.Record(list)
	return counted{s, c.submitted}, err
}

type counted struct {
	device.Sequence
	submitted *int
}

func (c counted) Submit() error {
	*c.submitted++
	return c.Sequence.Submit()
}
