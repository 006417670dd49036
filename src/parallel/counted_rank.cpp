#include "parallel/counted_rank.h"

#include "base/error.h"

namespace lockstep {

namespace {
class LonelyCommunicator final : public CountingCommunicator {
 public:
  LonelyCommunicator(int rank, int size, std::size_t record_bytes) : rank_(rank), size_(size), record_bytes_(record_bytes) {}
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
    std::vector<std::string> all(static_cast<std::size_t>(size_), std::string(record_bytes_, '\0'));
    all[static_cast<std::size_t>(rank_)] = mine;
    return all;
  }

 private:
  int rank_, size_;
  std::size_t record_bytes_;
};
}  // namespace

CountedRank::CountedRank(const RankLayout& layout, int rank, std::size_t record_bytes) : layout_(layout), rank_(rank) {
  if (rank < 0 || rank >= layout.size()) fail(ErrorCode::invalid_argument, "rank is {}, allowed are 0 to {}", rank, layout.size() - 1);
  const auto group = [&](int own, int size) { return std::make_unique<LonelyCommunicator>(own, size, record_bytes); };
  world_ = group(rank, layout.size());
  tensor_ = group(layout.tensor_of(rank), layout.tp);
  model_ = group(layout.model_of(rank), layout.model());
  data_ = group(layout.data_of(rank), layout.data());
  stages_ = group(layout.stage_of(rank), layout.pp);
  context_ = group(layout.context_of(rank), layout.cp);
  if (layout.stage_of(rank) > 0) before_ = group(1, 2);
  if (layout.stage_of(rank) + 1 < layout.pp) after_ = group(0, 2);
}

RankPlace CountedRank::place(int) const {
  if (size() == 1) return {};
  return {layout_, rank_, world_.get(), tensor_.get(), model_.get(), data_.get(), stages_.get(), before_.get(), after_.get(), context_.get()};
}

}  // namespace lockstep
