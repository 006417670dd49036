// A trainer's StateShares (trained/state_shares.h), over ShareFiles (trained/share_files.h): of a Trainer or an AdapterTrainer, which outlives it, as its ranks
// and the manifest of its parameters do. The thread of the trainer alone.
//   TrainerShares shares(trainer, ranks, manifest); shares.wait(); trainer.optim_step(adam);
#pragma once
#include "trained/share_files.h"
#include "trained/state_shares.h"

namespace lockstep {

template <class T>
class TrainerShares final : public StateShares {
 public:
  TrainerShares(T& trainer, Ranks& ranks, const Manifest& manifest) : trainer_(trainer), ranks_(ranks), manifest_(manifest) {}
  void begin(const std::filesystem::path& folder) override {
    files_.begin([this](const auto& work) { trainer_.each_share(work); }, ranks_, manifest_, folder);
  }
  std::vector<ShareFileEnd> finish() override { return files_.finish(ranks_); }
  void restore(const std::filesystem::path& folder, std::int64_t steps) override {
    wait();
    trainer_.restore(share_reader(folder, manifest_, steps), steps);
  }
  // Before each call that changes the trainer's state.
  void wait() const { files_.wait(); }

 private:
  T& trainer_;
  Ranks& ranks_;
  const Manifest& manifest_;
  ShareFiles files_;
};

}  // namespace lockstep
