#include "parallel/counted_rank.h"

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::size_t kNumberBytes = 256;

class LonelyCommunicator final : public CountingCommunicator {
 public:
  // `records`: bytes of each rank's; there are as many ranks.
  LonelyCommunicator(int rank, std::vector<std::size_t> records) : rank_(rank), size_(static_cast<int>(records.size())), records_(std::move(records)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {}
  void exchange(Stream&, const std::vector<View>& to, const std::vector<View>& from) override {
    if (to.size() != static_cast<std::size_t>(size_) || from.size() != to.size())
      fail(ErrorCode::internal, "an exchange of {} ranks has {} and {} views", size_, to.size(), from.size());
    count_call();
    for (int r = 0; r < size_; ++r)
      if (const View& target = from[static_cast<std::size_t>(r)]; r != rank_)
        count_bytes(target.size() * target.element_bytes, target.size() * target.element_bytes);
  }
  std::vector<std::string> gather_host(const std::string& mine) override {
    std::vector<std::string> all;
    for (const std::size_t bytes : records_) all.emplace_back(bytes, '\0');
    all[static_cast<std::size_t>(rank_)] = mine;
    return all;
  }

 private:
  int rank_, size_;
  std::vector<std::size_t> records_;
};
}  // namespace

CountedRank::CountedRank(const RankLayout& layout, int rank, const std::vector<std::size_t>& record_bytes, bool meanwhile)
    : layout_(layout), rank_(rank), meanwhile_(meanwhile) {
  if (rank < 0 || rank >= layout.size()) fail(ErrorCode::invalid_argument, "rank is {}, allowed are 0 to {}", rank, layout.size() - 1);
  if (std::ssize(record_bytes) != layout.size())
    fail(ErrorCode::internal, "records of {} ranks are given, and {} has {}", record_bytes.size(), layout.text(), layout.size());
  const auto group = [](int own, int size) {
    return std::make_unique<LonelyCommunicator>(own, std::vector<std::size_t>(static_cast<std::size_t>(size), kNumberBytes));
  };
  // Of so many ranks from `first` on, each `step` behind the one before.
  const auto with_results = [&](int own, int size, int first, int step) {
    std::vector<std::size_t> records;
    for (int r = 0; r < size; ++r) records.push_back(record_bytes[static_cast<std::size_t>(first + r * step)]);
    return std::make_unique<LonelyCommunicator>(own, std::move(records));
  };
  const int context = layout.context_of(rank), stage = layout.stage_of(rank);
  world_ = layout.deals_rows() ? with_results(rank, layout.size(), 0, 1) : group(rank, layout.size());
  tensor_ = group(layout.tensor_of(rank), layout.tp);
  model_ = group(layout.model_of(rank), layout.model());
  data_ = with_results(layout.data_of(rank), layout.data(), layout.replica_of(rank), layout.replica());
  stages_ = with_results(stage, layout.pp, rank - stage * layout.model(), layout.model());
  context_ = with_results(context, layout.cp, rank - context * layout.replica(), layout.replica());
  if (layout.stage_of(rank) > 0) before_ = group(1, 2);
  if (layout.stage_of(rank) + 1 < layout.pp) after_ = group(0, 2);
}

RankPlace CountedRank::place(int) const {
  if (size() == 1) return {};
  return {layout_, rank_, world_.get(), tensor_.get(), model_.get(), data_.get(), stages_.get(), before_.get(), after_.get(), context_.get()};
}

}  // namespace lockstep
