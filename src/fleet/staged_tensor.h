// A tensor on its way from what the live weights have to what a snapshot has: decoded and compared part by part, its changes handed on or held.
//   StagedTensor one(tensors, change, chain.update(tensor, digest));   TensorPass pass(runtime, tensors, buffers, {one.passed({})});   pass.run(executor);
// One thread at a time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "fleet/tensor_pass.h"
#include "sync/tensor_update.h"

namespace lockstep {

inline constexpr std::size_t kMostChanges = std::size_t{1} << 20;  // of one call

// What changes of a tensor in the live weights, and what undoes it.
struct StagedChange {
  std::size_t tensor = 0;
  SafetensorsType type = SafetensorsType::bf16;
  std::string before, after;  // digests
  // Of few elements the bits, by their places in the compute copies; of more (`many`) payloads.
  bool many = false;
  std::map<ParameterId, ParameterChanges> there, back;
  TensorCodec codec = TensorCodec::full, undo_codec = TensorCodec::full;
  std::string payload, undo;
};

class StagedTensor {
 public:
  // `tensors` outlives it.
  StagedTensor(const ModelTensors& tensors, StagedChange change, std::unique_ptr<TensorUpdate> update);
  StagedTensor(const StagedTensor&) = delete;
  // Its part of a pass, which this outlives. `take` gets the changes; null: change() holds them, there and back, unless they are many.
  PassedTensor passed(const std::function<void(std::map<ParameterId, ParameterChanges> some)>& take);
  StagedChange& change() { return change_; }

 private:
  void hold(std::int64_t first, std::string_view now);
  const ModelTensors& tensors_;
  StagedChange change_;
  std::unique_ptr<TensorUpdate> update_;
  std::string old_;         // the part that is changed, as it was
  std::int64_t count_ = 0;  // of elements that are held, there and back
};

}  // namespace lockstep
