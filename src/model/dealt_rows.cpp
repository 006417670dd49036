#include "model/dealt_rows.h"

#include "kernels/launch.h"
#include "model/sharding.h"
#include "parallel/collectives.h"

namespace lockstep {

namespace {
std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// The group with which this rank shares experts, and how many rows each has.
struct Travel {
  explicit Travel(Context& ctx) : group(ctx.sharding()->model()), rows(*ctx.options().dealt_rows), stream(ctx.backend().stream()) {}
  int ranks() const { return group.size(); }
  int me() const { return group.rank(); }
  std::vector<View> none() const { return std::vector<View>(at(ranks())); }
  // f(rank), of all ranks.
  template <class F>
  auto each(const F& f) const {
    std::vector<decltype(f(0))> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(f(r));
    return all;
  }
  Communicator& group;
  const DealtRows& rows;
  Stream& stream;
};

bool has_experts(const ColumnSplit& bounds, int rank) { return (*bounds)[at(rank) + 1] > (*bounds)[at(rank)]; }

// The rows of `whose` for which experts of `of` were chosen.
RowChoice choice_of(const Travel& travel, const ExpertsOfRanks& experts, int whose, int of) {
  return {travel.rows.of(experts.expert, whose), (*experts.bounds)[at(of)], (*experts.bounds)[at(of) + 1]};
}
}  // namespace

DealtRows::DealtRows(Backend& backend, std::vector<std::int64_t> begin, const std::vector<std::int32_t>& segments)
    : begin_(std::move(begin)), segment_(backend.device().upload(segments, begin_.back(), 1, MemoryCategory::activations)) {}

View DealtRows::of(const View& all, int rank) const { return all.row_range(begin_[at(rank)], begin_[at(rank) + 1] - begin_[at(rank)]); }

Buffer rows_of_all(Context& ctx, const View& own) {
  const Travel travel(ctx);
  Buffer all = ctx.allocate(own.dtype, travel.rows.count(), own.cols);
  all_gather(travel.group, travel.stream, own, travel.each([&](int r) { return travel.rows.of(all.view(), r); }));
  return all;
}

Buffer rows_for_experts(Context& ctx, const View& own, const ExpertsOfRanks& experts) {
  const Travel travel(ctx);
  const bool receives = has_experts(experts.bounds, travel.me());
  Buffer all;
  if (receives) all = ctx.allocate(own.dtype, travel.rows.count(), own.cols);
  exchange_chosen(travel.group, travel.stream, travel.each([&](int r) { return has_experts(experts.bounds, r) ? own : View(); }),
                  receives ? travel.each([&](int r) { return travel.rows.of(all.view(), r); }) : travel.none(),
                  travel.each([&](int r) { return choice_of(travel, experts, travel.me(), r); }),
                  travel.each([&](int r) { return choice_of(travel, experts, r, travel.me()); }));
  return all;
}

void join_sums_at_home(Context& ctx, const View& y, const View& sums, const ExpertsOfRanks& experts) {
  const Travel travel(ctx);
  const std::vector<std::int64_t>& groups = ctx.sharding()->expert_groups();
  const auto sums_up = [&](int r) { return groups[at(r) + 1] > groups[at(r)]; };
  const Buffer parts = ctx.allocate(DType::f32, y.rows * travel.ranks(), y.cols);
  const std::vector<View> of_rank = travel.each([&](int r) { return sums_up(r) ? parts.view().row_range(r * y.rows, y.rows) : View(); });
  exchange_chosen(travel.group, travel.stream, sums_up(travel.me()) ? travel.each([&](int r) { return travel.rows.of(sums, r); }) : travel.none(), of_rank,
                  travel.each([&](int r) { return choice_of(travel, experts, r, travel.me()); }),
                  travel.each([&](int r) { return choice_of(travel, experts, travel.me(), r); }));
  for (const auto& [into, from] : joins(groups.back(), travel.ranks()))
    ctx.launch(&KernelTable::add, Add{of_rank[at(into)], of_rank[at(into)], of_rank[at(from)]});
  travel.stream.copy(y, of_rank[0]);
}

Buffer values_of_experts(Context& ctx, const View& values, const ExpertsOfRanks& experts) {
  const Travel travel(ctx);
  const View own = travel.rows.of(experts.expert, travel.me());
  Buffer picked = ctx.allocate(DType::f32, own.rows, own.cols);
  const Buffer parts = ctx.allocate(DType::f32, own.rows * travel.ranks(), own.cols);
  const auto part_of = [&](int r) { return has_experts(experts.bounds, r) ? parts.view().row_range(r * own.rows, own.rows) : View(); };
  const bool sends = has_experts(experts.bounds, travel.me());
  travel.group.exchange(travel.stream, sends ? travel.each([&](int r) { return travel.rows.of(values, r); }) : travel.none(), travel.each(part_of));
  ctx.launch(&KernelTable::pick, Pick{picked.view(), parts.view(), own, *experts.bounds});
  return picked;
}

}  // namespace lockstep
