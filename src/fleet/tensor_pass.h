// A pass over tensors of a compute copy, each in row-major parts in their order (model/tensor_parts.h), on all threads of the device: how digests are made,
// changes found and snapshots applied with no more memory than the parts.
//   TensorPass pass(runtime, tensors, weights->parameters, {{i, type, [&](std::int64_t first, char* words, std::size_t bytes) { ... }, [&] { ... }}});
//   pass.run(executor);
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "base/running_digest.h"
#include "fleet/model_tensors.h"
#include "model/runtime.h"
#include "serving/on_executor.h"

namespace lockstep {

// Functions are called by one thread at a time for each tensor, for several tensors at once.
struct PassedTensor {
  std::size_t tensor = 0;  // of the ModelTensors
  SafetensorsType type = SafetensorsType::bf16;
  std::function<void(std::int64_t first, char* words, std::size_t bytes)> part;  // from element `first` on; may change the words
  std::function<void()> end = {};                                                // after the last part
};

// One that digests a tensor; `digest` outlives it.
PassedTensor digested(std::size_t tensor, SafetensorsType type, RunningDigest& digest);

class TensorPass {
 public:
  // All outlive it.
  TensorPass(Runtime& runtime, const ModelTensors& tensors, const std::vector<Buffer>& buffers, std::vector<PassedTensor> list);
  // Some milliseconds' work; false: all is done. Throws what the functions throw.
  bool turn(const OnExecutor& on);
  // All turns. From another thread each is a step of the executor, between its other work; in a step they come at once. Throws as turn.
  void run(Executor& executor);
  void run(const OnExecutor& on);

 private:
  struct Worker {
    std::size_t tensor = 0;  // of list_; its size: none
    std::optional<TensorParts> parts;
    std::size_t next = 0;
    std::vector<char> words, scratch;
  };
  void work(Worker& worker);
  Runtime& runtime_;
  const ModelTensors& tensors_;
  const std::vector<Buffer>& buffers_;
  std::vector<PassedTensor> list_;  // the largest first
  std::atomic<std::size_t> begun_{0};
  std::vector<Worker> workers_;
};

}  // namespace lockstep
