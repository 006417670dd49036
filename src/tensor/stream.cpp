#include "tensor/stream.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/give_way.h"
#include "tensor/device_pointer.h"

namespace lockstep {

struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::deque<std::function<void()>> work;
  bool running = false, stop = false;
  std::exception_ptr error;
  std::thread thread;

  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stop || !work.empty(); });
      if (work.empty()) return;
      std::function<void()> item = std::move(work.front());
      work.pop_front();
      running = true;
      const bool skip = static_cast<bool>(error);
      lock.unlock();
      std::exception_ptr caught;
      if (!skip) {
        try {
          item();
        } catch (...) {
          caught = std::current_exception();
        }
      }
      item = nullptr;  // destroy captured buffers outside the lock
      lock.lock();
      if (caught) error = caught;
      running = false;
      if (work.empty()) idle.notify_all();
    }
  }
};

Stream::Stream(BackendKind kind) : deferred_(queued(kind)), traced_(kind == BackendKind::traced), counting_(kind == BackendKind::counting) {
  if (kind == BackendKind::cuda) cuda_ = std::make_unique<CudaStream>();
  if (!deferred_) return;
  queue_ = std::make_unique<Queue>();
  queue_->thread = std::thread([this] { queue_->loop(); });
}

Stream::~Stream() {
  if (!queue_) return;
  {
    std::lock_guard lock(queue_->mutex);
    queue_->stop = true;
  }
  queue_->wake.notify_all();
  queue_->thread.join();
}

void Stream::enqueue(std::function<void()> work) {
  if (counting_) return;
  if (!queue_) return work();
  {
    std::lock_guard lock(queue_->mutex);
    queue_->work.push_back(std::move(work));
  }
  queue_->wake.notify_one();
}

void Stream::synchronize() {
  if (cuda_) return cuda_->synchronize();
  if (!queue_) return;
  std::unique_lock lock(queue_->mutex);
  queue_->idle.wait(lock, [&] { return queue_->work.empty() && !queue_->running; });
  if (queue_->error) {
    std::exception_ptr error = queue_->error;
    queue_->error = nullptr;
    std::rethrow_exception(error);
  }
}

namespace {
// Calls f(row, first column, columns) for parts of rows; gives way where another `least` elements are done, inside of rows too: a packed parameter is one.
template <class F>
void each_part(const View& view, std::int64_t least, const F& f) {
  std::int64_t since = 0;
  for (std::int64_t r = 0; r < view.rows; ++r)
    for (std::int64_t begin = 0; begin < view.cols; begin += least) {
      const std::int64_t columns = std::min(least, view.cols - begin);
      f(r, begin, columns);
      if ((since += columns) < least) continue;
      since = 0;
      give_way();
    }
}

constexpr auto kBytesAPart = static_cast<std::int64_t>(kBlockToGiveWay);

// Calls f(element, index) for each element in row-major order.
template <class T, class F>
void each_element(const View& view, const F& f) {
  each_part(view, kBytesAPart / static_cast<std::int64_t>(sizeof(float)), [&](std::int64_t r, std::int64_t begin, std::int64_t columns) {
    T* part = device_pointer<T>(view) + r * view.stride + begin;
    for (std::int64_t c = 0; c < columns; ++c) f(part[c], r * view.cols + begin + c);
  });
}

void check_count(const View& view, std::size_t count) {
  if (static_cast<std::int64_t>(count) != view.size()) fail(ErrorCode::internal, "a copy of {} values meets a view of {} x {}", count, view.rows, view.cols);
}
}  // namespace

void Stream::write(const View& view, const std::vector<float>& values) {
  if (counting_) return;
  check_count(view, values.size());
  if (cuda_ && view.dtype == DType::bf16) {
    std::vector<Bf16> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), round_to_bf16);
    return cuda_->upload(view, rounded.data());
  }
  if (cuda_) return cuda_->upload(view, values.data());
  auto copy = [view, traced = traced_](const std::vector<float>& v) {
    if (traced)
      each_element<Traced>(view, [&](Traced& e, std::int64_t i) { e = traced_constant(view.dtype == DType::bf16 ? widen(round_to_bf16(v[i])) : v[i]); });
    else if (view.dtype == DType::bf16) each_element<Bf16>(view, [&](Bf16& e, std::int64_t i) { e = round_to_bf16(v[i]); });
    else each_element<float>(view, [&](float& e, std::int64_t i) { e = v[i]; });
  };
  if (!queue_) return copy(values);
  enqueue([copy, values] { copy(values); });
}

void Stream::write(const View& view, const std::vector<std::int32_t>& values) {
  if (counting_) return;
  check_count(view, values.size());
  if (cuda_) return cuda_->upload(view, values.data());
  auto copy = [view](const std::vector<std::int32_t>& v) { each_element<std::int32_t>(view, [&](std::int32_t& e, std::int64_t i) { e = v[i]; }); };
  if (!queue_) return copy(values);
  enqueue([copy, values] { copy(values); });
}

void Stream::write(const View& view, const std::vector<std::uint8_t>& values) {
  if (counting_) return;
  check_count(view, values.size());
  if (cuda_) return cuda_->upload(view, values.data());
  auto copy = [view](const std::vector<std::uint8_t>& v) { each_element<std::uint8_t>(view, [&](std::uint8_t& e, std::int64_t i) { e = v[i]; }); };
  if (!queue_) return copy(values);
  enqueue([copy, values] { copy(values); });
}

void Stream::copy(const View& to, const View& from) {
  if (to.rows != from.rows || to.cols != from.cols || to.element_bytes != from.element_bytes)
    fail(ErrorCode::internal, "a copy of {} x {} meets a view of {} x {}", from.rows, from.cols, to.rows, to.cols);
  if (cuda_) return cuda_->copy(to, from);
  enqueue([to, from] {
    const auto* source = device_pointer<const unsigned char>(from);
    auto* target = device_pointer<unsigned char>(to);
    const bool whole = to.stride == to.cols && from.stride == from.cols;
    const View shape = whole ? to.reshape(1, to.size()) : to;
    each_part(shape, std::max<std::int64_t>(1, kBytesAPart / to.element_bytes), [&](std::int64_t r, std::int64_t begin, std::int64_t columns) {
      std::memcpy(target + (r * to.stride + begin) * to.element_bytes, source + (r * from.stride + begin) * to.element_bytes,
                  static_cast<std::size_t>(columns * to.element_bytes));
    });
  });
}

void Stream::fill_zero(const View& view) {
  if (cuda_) return cuda_->fill_zero(view);
  enqueue([view, traced = traced_] {
    if (traced && (view.dtype == DType::f32 || view.dtype == DType::bf16))
      return each_element<Traced>(view, [](Traced& e, std::int64_t) { e = traced_constant(0.0f); });
    each_part(view, std::max<std::int64_t>(1, kBytesAPart / view.element_bytes), [&](std::int64_t r, std::int64_t begin, std::int64_t columns) {
      unsigned char* part = device_pointer<unsigned char>(view) + (r * view.stride + begin) * view.element_bytes;
      std::memset(part, 0, static_cast<std::size_t>(columns * view.element_bytes));
    });
  });
}

// The elements of a view of a GPU, all earlier work done. What fails there is told by get(), as on the other streams.
template <class T>
static std::future<std::vector<T>> download(CudaStream& stream, const View& view) {
  std::packaged_task<std::vector<T>()> task([&] {
    std::vector<T> values(static_cast<std::size_t>(view.size()));
    stream.download(values.data(), view);
    return values;
  });
  task();
  return task.get_future();
}

template <class T, class Fill>
static std::future<std::vector<T>> read_with(Stream& stream, bool counting, const View& view, const Fill& fill) {
  auto task = std::make_shared<std::packaged_task<std::vector<T>()>>([counting, view, fill] {
    std::vector<T> values;
    grow_with_zeros(values, static_cast<std::size_t>(view.size()));
    if (!counting) fill(view, values);
    return values;
  });
  std::future<std::vector<T>> result = task->get_future();
  // If earlier work failed, the task is dropped and get() would say "broken promise": synchronize first to rethrow it.
  if (counting) (*task)();
  else stream.enqueue([task] { (*task)(); });
  if (stream.deferred()) stream.synchronize();
  return result;
}

std::future<std::vector<float>> Stream::read(const View& view) {
  if (cuda_ && view.dtype == DType::bf16) {
    std::vector<Bf16> halves = download<Bf16>(*cuda_, view).get();
    std::vector<float> widened(halves.size());
    std::transform(halves.begin(), halves.end(), widened.begin(), widen);
    std::promise<std::vector<float>> ready;
    ready.set_value(std::move(widened));
    return ready.get_future();
  }
  if (cuda_) return download<float>(*cuda_, view);
  return read_with<float>(*this, counting_, view, [traced = traced_](const View& v, std::vector<float>& out) {
    if (traced) each_element<Traced>(v, [&](Traced& e, std::int64_t i) { out[i] = e.value; });
    else if (v.dtype == DType::bf16) each_element<Bf16>(v, [&](Bf16& e, std::int64_t i) { out[i] = widen(e); });
    else each_element<float>(v, [&](float& e, std::int64_t i) { out[i] = e; });
  });
}

std::future<std::vector<std::int32_t>> Stream::read_ints(const View& view) {
  if (cuda_) return download<std::int32_t>(*cuda_, view);
  return read_with<std::int32_t>(*this, counting_, view, [](const View& v, std::vector<std::int32_t>& out) {
    each_element<std::int32_t>(v, [&](std::int32_t& e, std::int64_t i) { out[i] = e; });
  });
}

std::future<std::vector<std::uint8_t>> Stream::read_bytes(const View& view) {
  if (cuda_) return download<std::uint8_t>(*cuda_, view);
  return read_with<std::uint8_t>(*this, counting_, view, [](const View& v, std::vector<std::uint8_t>& out) {
    each_element<std::uint8_t>(v, [&](std::uint8_t& e, std::int64_t i) { out[i] = e; });
  });
}

std::future<std::vector<std::uint64_t>> Stream::read_hashes(const View& view) {
  if (!traced_) fail(ErrorCode::internal, "only the traced backend has hashes");
  return read_with<std::uint64_t>(*this, counting_, view, [](const View& v, std::vector<std::uint64_t>& out) {
    each_element<Traced>(v, [&](Traced& e, std::int64_t i) { out[i] = e.hash; });
  });
}

}  // namespace lockstep
