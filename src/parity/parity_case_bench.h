// A case (parity/parity_case.h) with its model, and what computes its ways on one configuration. For parity_case*.cpp only. One thread.
//   const LoadedCase loaded = load_case(file);  CaseBench bench(loaded, parity_reference());  bench.sampled().bits
#pragma once
#include "checkpoint/adapter_folder.h"
#include "checkpoint/difference_case.h"
#include "checkpoint/model_reader.h"
#include "parity/parity_run.h"
#include "train/adapter_trainer.h"
#include "train/trainer.h"

namespace lockstep {

struct LoadedCase {
  DifferenceCase one;
  const Profile& profile;
  std::shared_ptr<const ModelReader> reader;
  WeightImages masters;                  // where all weights train; else empty
  std::optional<LoadedAdapter> adapter;  // over the model
  std::int64_t length() const { return std::ssize(one.tokens); }
  bool steps() const { return !masters.empty() || adapter; }  // whether something trains
};
// Errors: those of repeat_case.
LoadedCase load_case(const std::filesystem::path& file);

struct CaseNumbers {
  std::vector<std::uint32_t> bits;  // by trained token
  std::int64_t other_kept_sets = 0;
};

class CaseBench {
 public:
  // Outlived by the case.
  CaseBench(const LoadedCase& loaded, const ParityPlace& place);

  CaseNumbers sampled();           // token after token over the cache, each as it was drawn; its forwards are kept if the run kept them
  CaseNumbers prefilled();         // each token after a prompt of all tokens before it
  CaseNumbers trained();           // the forward alone
  CaseNumbers with_a_gradient();   // reads what sampled() kept, if it was called before
  std::int64_t rows_read() const;  // by training, of what was kept
  bool keeps_forwards() const { return kept_ != nullptr; }

 private:
  Request request(std::size_t prompt, std::size_t end) const;
  Generation said(Request asked);
  bool other_kept(std::size_t trained, const KeptTokens& kept) const;
  CaseNumbers of_rows(const std::vector<float>& logprobs) const;

  const LoadedCase& loaded_;
  Runtime runtime_;
  std::shared_ptr<KeptForwards> kept_;  // null: nothing is kept
  std::shared_ptr<FrozenBase> base_;    // under an adapter, or where nothing trains
  std::unique_ptr<AdapterTrainer> adapter_trainer_;
  std::unique_ptr<Trainer> trainer_;  // of all weights
  std::shared_ptr<const WeightSet> weights_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace lockstep
