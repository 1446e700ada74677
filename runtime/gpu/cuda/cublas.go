//go:build (linux && !nocuda) || windows

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Constants of cuBLAS.
const (
	cublasNormal, cublasTransposed = 0, 1
	cublasFloat32, cublasBFloat16  = 0, 14
	cublasComputeFloat32           = 68
	cublasDefaultAlgorithm         = -1
)

// workspaceBytes is the workspace that cuBLAS needs on Hopper. It is allocated in advance, since a graph must not
// allocate.
const workspaceBytes = 64 << 20

// cublas is cuBLAS with a handle. Its calls are captured on a stream of its own.
type cublas struct {
	api       *api
	handle    uintptr
	stream    uintptr
	workspace *buffer
	scale     *[2]float32 // alpha and beta
}

var cublasLibrary = sync.OnceValues(func() (*api, error) {
	path, library, err := find("libcublas", cublasNames, "ETC_CUBLAS")
	if err != nil {
		return nil, err
	}
	return newAPI(path, library, []string{"cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2",
		"cublasSetWorkspace_v2", "cublasGemmStridedBatchedEx"})
})

// newCublas opens cuBLAS for a device, whose context is current.
func newCublas(d *gpu) (*cublas, error) {
	api, err := cublasLibrary()
	if err != nil {
		return nil, err
	}
	m := &cublas{api: api, scale: &[2]float32{1, 0}}
	if m.workspace, err = d.allocate(workspaceBytes); err != nil {
		return nil, err
	}
	err = m.call("cublasCreate_v2", uintptr(unsafe.Pointer(&m.handle)))
	if err == nil {
		err = d.call("cuStreamCreate", uintptr(unsafe.Pointer(&m.stream)), streamNonBlocking)
	}
	if err == nil {
		err = m.call("cublasSetStream_v2", m.handle, m.stream)
	}
	if err == nil { // after the stream, which resets it
		err = m.call("cublasSetWorkspace_v2", m.handle, m.workspace.address, workspaceBytes)
	}
	if err != nil {
		return nil, errors.Join(err, m.close(d))
	}
	return m, nil
}

// call calls a function of cuBLAS.
//
//go:uintptrescapes
func (m *cublas) call(name string, args ...uintptr) error {
	if status := m.api.result(name, args...); status != 0 {
		return fmt.Errorf("cuda: %s: cuBLAS's status %d", name, status)
	}
	return nil
}

func (m *cublas) close(d *gpu) error {
	var errs []error
	if m.handle != 0 {
		errs = append(errs, m.call("cublasDestroy_v2", m.handle))
	}
	if m.stream != 0 {
		errs = append(errs, d.call("cuStreamDestroy_v2", m.stream))
	}
	return errors.Join(append(errs, m.workspace.Close())...)
}

// product is a matrix product by cuBLAS, a kernel to package device.
type product struct {
	device *gpu
	shape  device.Product
	name   string
}

// MatrixProduct makes a product by cuBLAS.
func (d *gpu) MatrixProduct(p device.Product) (device.Kernel, error) {
	for _, n := range []int{p.M, p.N, p.K, max(1, p.Batch)} {
		if n < 1 || n > 1<<31-1 {
			return nil, fmt.Errorf("cuda: a matrix product of shape %+v, every number must be from 1 to 2^31-1", p)
		}
	}
	d.products.Lock()
	defer d.products.Unlock()
	if d.multiplier == nil && d.productsErr == nil {
		d.productsErr = d.do(func() (err error) {
			d.multiplier, err = newCublas(d)
			return err
		})
	}
	if d.productsErr != nil {
		return nil, d.productsErr
	}
	return &product{d, p, fmt.Sprintf("cublas %dx%dx%d", p.M, p.N, p.K)}, nil
}

func (p *product) Name() string    { return p.name }
func (p *product) MaxThreads() int { return 1024 }
func (p *product) Close() error    { return nil }

// check checks that the operands lie in their buffers.
func (p *product) check(i int, x device.Dispatch) error {
	s := p.shape
	y := 2
	if s.Float32 {
		y = 4
	}
	for j, size := range []int{2 * s.M * s.K, 2 * s.N * s.K, y * s.M * s.N} {
		size *= max(1, s.Batch)
		a := x.Arguments[j]
		if a.Buffer == nil {
			return fmt.Errorf("dispatch %d (%s): argument %d of %s must be a buffer", i, x.Label, j, p.name)
		}
		if err := device.CheckRange(fmt.Sprintf("dispatch %d (%s): argument %d of %s", i, x.Label, j, p.name), a.Offset,
			size, a.Buffer.Size()); err != nil {
			return err
		}
	}
	return nil
}

// add captures the product and puts what was captured into a graph.
func (p *product) add(d *gpu, graph uintptr, after []node, values []uint64) (n node, err error) {
	m, s := d.multiplier, p.shape
	if err := d.call("cuStreamBeginCapture_v2", m.stream, captureRelaxed); err != nil {
		return 0, err
	}
	typ := uintptr(cublasBFloat16)
	if s.Float32 {
		typ = cublasFloat32
	}
	M, N, K := uintptr(s.M), uintptr(s.N), uintptr(s.K)
	// cuBLAS has columns one after another: yᵀ [N, M] = w [N, K] · xᵀ [K, M].
	algorithm := int32(cublasDefaultAlgorithm)
	err = m.call("cublasGemmStridedBatchedEx", m.handle, cublasTransposed, cublasNormal, N, M, K,
		uintptr(unsafe.Pointer(&m.scale[0])),
		uintptr(values[1]), cublasBFloat16, K, N*K, uintptr(values[0]), cublasBFloat16, K, M*K,
		uintptr(unsafe.Pointer(&m.scale[1])), uintptr(values[2]), typ, N, M*N, uintptr(max(1, s.Batch)),
		cublasComputeFloat32, uintptr(algorithm))
	var captured uintptr
	err = errors.Join(err, d.call("cuStreamEndCapture", m.stream, uintptr(unsafe.Pointer(&captured))))
	if err == nil {
		err = d.call("cuGraphAddChildGraphNode", uintptr(unsafe.Pointer(&n)), graph,
			uintptr(unsafe.Pointer(unsafe.SliceData(after))), uintptr(len(after)), captured)
	}
	if captured != 0 {
		err = errors.Join(err, d.call("cuGraphDestroy", captured))
	}
	return n, err
}
