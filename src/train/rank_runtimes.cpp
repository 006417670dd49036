#include "train/rank_runtimes.h"

#include "base/error.h"
#include "parallel/thread_ranks.h"

namespace lockstep {

namespace {
void check_layout(const RankLayout& wanted, const RankLayout& given) {
  if (wanted != given)
    fail(ErrorCode::invalid_argument, "ranks is {} and the ranks that were given are {}; allowed is one layout", wanted.text(), given.text());
}
}  // namespace

RankRuntimes::RankRuntimes(Runtime& first, const RankLayout& layout, std::unique_ptr<Ranks> ranks)
    : first_(first), ranks_(ranks ? std::move(ranks) : std::make_unique<ThreadRanks>(layout)), others_(static_cast<std::size_t>(ranks_->local() - 1)) {
  check_layout(layout, ranks_->layout());
  Backend& like = first_.backend;
  for (std::unique_ptr<Runtime>& other : others_)
    other = std::make_unique<Runtime>(BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()}, first_.model, first_.profile,
                                      first_.max_positions);
}

std::shared_ptr<RankRuntimes> RankRuntimes::given_or_threads(std::shared_ptr<RankRuntimes> given, Runtime& first, const RankLayout& layout) {
  if (!given) return std::make_shared<RankRuntimes>(first, layout);
  check_layout(layout, given->ranks().layout());
  if (&given->first_ != &first) fail(ErrorCode::invalid_argument, "the ranks that were given are of another runtime; allowed is the trainer's own");
  return given;
}

}  // namespace lockstep
