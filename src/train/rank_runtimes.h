// The local ranks of trainers over one runtime, with a runtime for each: the first one's is that runtime, the others get one like it, with as many
// threads. Trainers that have the same ones work in turns, as those of a training server do, so that many models need no more threads and devices than one.
//   auto ranks = std::make_shared<RankRuntimes>(runtime, options.ranks); Trainer one(runtime, images, options, ranks), two(runtime, others, options, ranks);
// One caller at a time.
#pragma once
#include <memory>
#include <vector>

#include "model/runtime.h"
#include "parallel/ranks.h"

namespace lockstep {

class RankRuntimes {
 public:
  // `first` outlives this. `ranks` null: threads of this process. Error invalid_argument for ranks of another layout.
  RankRuntimes(Runtime& first, const RankLayout& layout, std::unique_ptr<Ranks> ranks = nullptr);
  // `given`, or where it is null those of this layout as threads. Error invalid_argument for given ones of another layout or another runtime.
  static std::shared_ptr<RankRuntimes> given_or_threads(std::shared_ptr<RankRuntimes> given, Runtime& first, const RankLayout& layout);

  Ranks& ranks() const { return *ranks_; }
  Runtime& runtime(int local) const { return local > 0 ? *others_[static_cast<std::size_t>(local - 1)] : first_; }
  const MemoryAccounts& memory(int local) const { return runtime(local).backend.device().memory(); }

 private:
  Runtime& first_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::unique_ptr<Runtime>> others_;  // of local ranks 1 and up
};

}  // namespace lockstep
