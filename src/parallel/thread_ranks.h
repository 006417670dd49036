// Ranks as threads of this process, one each (rank 0 is the caller's), with their communicators; all are local.
//   ThreadRanks ranks(layout); ranks.run([&](int rank) { ranks.data(rank).barrier(); });
// Each rank brings its own device. An error of one rank releases all others and is what run() throws; the next run() starts afresh.
// One caller at a time.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "parallel/ranks.h"

namespace lockstep {

class ThreadRanks final : public Ranks {
 public:
  explicit ThreadRanks(const RankLayout& layout);
  ~ThreadRanks() override;
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  const RankLayout& layout() const override { return layout_; }
  int local() const override { return layout_.size(); }
  RankPlace place(int rank) const override;
  void run(const std::function<void(int)>& work) override;
  double worked(int rank) const override;

  Communicator& world(int rank) const { return *ends_[static_cast<std::size_t>(rank)].world; }
  Communicator& tensor(int rank) const { return *ends_[static_cast<std::size_t>(rank)].tensor; }  // its tp ranks
  Communicator& model(int rank) const { return *ends_[static_cast<std::size_t>(rank)].model; }    // its stage: tp x ep ranks
  Communicator& data(int rank) const { return *ends_[static_cast<std::size_t>(rank)].data; }      // its place in every replica

 private:
  struct State;
  struct Ends {
    std::unique_ptr<Communicator> world, tensor, model, data, stages, before, after, context;
  };
  RankLayout layout_;
  std::unique_ptr<State> state_;
  std::vector<Ends> ends_;
};

}  // namespace lockstep
