#include "fleet/tensor_pass.h"

#include <algorithm>

#include "tensor/readable_bytes.h"

namespace lockstep {
namespace {
constexpr std::size_t kBytesATurn = std::size_t{2} << 20;  // of one thread: a live request waits for no more
}

PassedTensor digested(std::size_t tensor, SafetensorsType type, RunningDigest& digest) {
  return {tensor, type, [&digest](std::int64_t, char* words, std::size_t bytes) { digest.update(words, bytes); }};
}

TensorPass::TensorPass(Runtime& runtime, const ModelTensors& tensors, const std::vector<Buffer>& buffers, std::vector<PassedTensor> list)
    : runtime_(runtime), tensors_(tensors), buffers_(buffers), list_(std::move(list)) {
  std::stable_sort(list_.begin(), list_.end(),
                   [&](const PassedTensor& a, const PassedTensor& b) { return tensors_.shapes()[a.tensor].bytes > tensors_.shapes()[b.tensor].bytes; });
  Device& device = runtime_.backend.device();
  workers_.resize(is_readable(device) ? static_cast<std::size_t>(device.threads().threads()) : 1);
  for (Worker& worker : workers_) worker.tensor = list_.size();
}

bool TensorPass::turn(const OnExecutor&) {
  if (workers_.size() == 1) work(workers_.front());
  else runtime_.backend.device().threads().run(std::ssize(workers_), [&](std::int64_t i) { work(workers_[static_cast<std::size_t>(i)]); });
  return begun_ < list_.size() || std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.tensor < list_.size(); });
}

void TensorPass::run(Executor& executor) {
  bool more = true;
  while (more) more = run_on(executor, WorkClass::training, [&](const OnExecutor& on) { return turn(on); }).get();
}

void TensorPass::run(const OnExecutor& on) {
  bool more = true;
  while (more) more = turn(on);
}

void TensorPass::work(Worker& worker) {
  for (std::size_t done = 0; done < kBytesATurn;) {
    if (worker.tensor == list_.size()) {
      const std::size_t next = begun_++;
      if (next >= list_.size()) return;
      worker.tensor = next;
      worker.parts.emplace(tensors_.parts(list_[next].tensor, list_[next].type));
      worker.next = 0;
    }
    const PassedTensor& passed = list_[worker.tensor];
    if (worker.next < worker.parts->count()) {
      const auto bytes = static_cast<std::size_t>(worker.parts->elements(worker.next) * worker.parts->width());
      if (worker.words.size() < bytes) worker.words.resize(bytes);
      worker.parts->read(runtime_.backend.device(), buffers_, worker.next, worker.words.data(), worker.scratch);
      passed.part(worker.parts->first(worker.next), worker.words.data(), bytes);
      ++worker.next;
      done += bytes;
      continue;
    }
    if (passed.end) passed.end();
    worker.tensor = list_.size();
  }
}

}  // namespace lockstep
