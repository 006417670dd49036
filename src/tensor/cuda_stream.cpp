#include "tensor/cuda_stream.h"

#include <bit>

#include "base/error.h"
#include "tensor/device_pointer.h"

#ifdef LOCKSTEP_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lockstep {

#ifdef LOCKSTEP_CUDA

namespace {
void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(status == cudaErrorMemoryAllocation ? ErrorCode::resource_exhausted : ErrorCode::internal, "CUDA: {} failed: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}
// Width and rows of a view for a 2-D copy; a pitch is limited to 2^31 - 1 bytes, so views without gaps are copied flat.
struct Pitched {
  unsigned char* at;
  std::size_t pitch, width, rows;
  bool flat;
};
Pitched pitched(const View& view) {
  const auto element = static_cast<std::size_t>(view.element_bytes), width = static_cast<std::size_t>(view.cols) * element;
  return {device_pointer<unsigned char>(view), static_cast<std::size_t>(view.stride) * element, width, static_cast<std::size_t>(view.rows),
          view.stride == view.cols || view.rows == 1};
}
cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }
}  // namespace

bool built_with_cuda() { return true; }

CudaDeviceInfo cuda_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    fail(ErrorCode::unsupported, "no NVIDIA GPU can be used here: {}", status != cudaSuccess ? cudaGetErrorString(status) : "the driver names none");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  if (properties.major < 8)
    fail(ErrorCode::unsupported, "the GPU {} has compute capability {}.{}, needed is 8.0 or more", properties.name, properties.major, properties.minor);
  CudaDeviceInfo info{properties.name, properties.major, properties.minor, properties.totalGlobalMem, 0, 0};
  check_cuda(cudaDriverGetVersion(&info.driver), "asking for the driver's version");
  check_cuda(cudaRuntimeGetVersion(&info.runtime), "asking for the runtime's version");
  return info;
}

CudaStream::CudaStream() {
  cuda_device();
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_ = stream;
}

CudaStream::~CudaStream() {
  if (!stream_) return;
  cudaStreamSynchronize(of(stream_));  // before the memory of queued work goes away
  cudaStreamDestroy(of(stream_));
}

void CudaStream::upload(const View& to, const void* elements) {
  if (to.size() == 0) return;
  const Pitched p = pitched(to);
  // From pageable memory: staged before the call returns.
  check_cuda(p.flat ? cudaMemcpyAsync(p.at, elements, p.width * p.rows, cudaMemcpyHostToDevice, of(stream_))
                    : cudaMemcpy2DAsync(p.at, p.pitch, elements, p.width, p.width, p.rows, cudaMemcpyHostToDevice, of(stream_)),
             "a copy to the GPU");
}

void CudaStream::download(void* elements, const View& from) {
  if (from.size() == 0) return synchronize();
  const Pitched p = pitched(from);
  check_cuda(p.flat ? cudaMemcpyAsync(elements, p.at, p.width * p.rows, cudaMemcpyDeviceToHost, of(stream_))
                    : cudaMemcpy2DAsync(elements, p.width, p.at, p.pitch, p.width, p.rows, cudaMemcpyDeviceToHost, of(stream_)),
             "a copy from the GPU");
  synchronize();
}

void CudaStream::copy(const View& to, const View& from) {
  if (to.size() == 0) return;
  const Pitched target = pitched(to), source = pitched(from);
  check_cuda(target.flat && source.flat
                 ? cudaMemcpyAsync(target.at, source.at, target.width * target.rows, cudaMemcpyDeviceToDevice, of(stream_))
                 : cudaMemcpy2DAsync(target.at, target.pitch, source.at, source.pitch, target.width, target.rows, cudaMemcpyDeviceToDevice, of(stream_)),
             "a copy on the GPU");
}

void CudaStream::fill_zero(const View& view) {
  if (view.size() == 0) return;
  const Pitched p = pitched(view);
  check_cuda(p.flat ? cudaMemsetAsync(p.at, 0, p.width * p.rows, of(stream_)) : cudaMemset2DAsync(p.at, p.pitch, 0, p.width, p.rows, of(stream_)),
             "filling with zeros");
}

void CudaStream::synchronize() { check_cuda(cudaStreamSynchronize(of(stream_)), "earlier work"); }

bool CudaStream::finished() {
  const cudaError_t status = cudaStreamQuery(of(stream_));
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "earlier work");
  return true;
}

void* CudaStream::place_of(const View& view) { return device_pointer<unsigned char>(view); }

static void* allocate_on_gpu(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaSuccess) return block;
  cudaGetLastError();  // it is no error of later work
  if (status != cudaErrorMemoryAllocation) check_cuda(status, "allocating memory");
  return nullptr;
}
static void free_on_gpu(void* block) noexcept { cudaFree(block); }

#else

bool built_with_cuda() { return false; }

CudaDeviceInfo cuda_device() {
  fail(ErrorCode::unsupported, "this build has no CUDA: it was made where no GPU, or no nvcc 12.8 or newer, was found; ./setup --cuda builds it in");
}
CudaStream::CudaStream() { cuda_device(); }
CudaStream::~CudaStream() = default;
void CudaStream::upload(const View&, const void*) {}
void CudaStream::download(void*, const View&) {}
void CudaStream::copy(const View&, const View&) {}
void CudaStream::fill_zero(const View&) {}
void CudaStream::synchronize() {}
bool CudaStream::finished() { return true; }
void* CudaStream::place_of(const View&) { return nullptr; }
static void* allocate_on_gpu(std::size_t) { return nullptr; }
static void free_on_gpu(void*) noexcept {}

#endif

namespace {
// Powers of two and the half steps between, in grains that keep alignment.
std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kGrain = 512, kExact = std::size_t{64} << 20;
  if (bytes >= kExact) return (bytes + (kExact >> 5) - 1) / (kExact >> 5) * (kExact >> 5);
  const std::size_t power = std::bit_ceil(std::max(bytes, kGrain));
  return bytes <= power / 4 * 3 ? power / 4 * 3 : power;
}
}  // namespace

CudaMemoryPool::~CudaMemoryPool() {
  for (auto& [size, blocks] : free_)
    for (void* block : blocks) free_on_gpu(block);
}

void* CudaMemoryPool::take(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  std::lock_guard lock(mutex_);
  std::vector<void*>& same = free_[size];
  if (!same.empty()) {
    void* block = same.back();
    same.pop_back();
    return block;
  }
  std::size_t& made = made_[size];
  same.reserve(made + 1);  // freeing must not allocate
  void* block = allocate_on_gpu(size);
  if (!block) {  // release idle blocks of other size classes first
    for (auto& [other, blocks] : free_) {
      for (void* idle : blocks) free_on_gpu(idle);
      made_[other] -= blocks.size();
      blocks.clear();
    }
    block = allocate_on_gpu(size);
  }
  if (!block) fail(ErrorCode::resource_exhausted, "{} bytes of GPU memory could not be allocated", size);
  ++made;
  return block;
}

void CudaMemoryPool::give(void* block, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  free_[size_class(bytes)].push_back(block);
}

}  // namespace lockstep
