#include "train/rank_rows.h"

#include "kernels/launch.h"
#include "model/compute_copy.h"
#include "model/low_bit_weights.h"
#include "parallel/collectives.h"
#include "train/sequence_place.h"

namespace lockstep {

namespace {
// Of stacked matrices whole ones, dealt as rows are.
void deal_items(ParameterShare& share, const Parameter& p, ParameterId id) {
  const std::int64_t panels = (p.outputs + 15) / 16, ranks = std::ssize(share.bounds) - 1;
  if (p.layout != ParameterLayout::packed) return;
  for (std::int64_t r = 0; r <= ranks; ++r) share.bounds[static_cast<std::size_t>(r)] = (p.count * r + id % ranks) / ranks * panels;
}

AddInto adder(Backend& backend) {
  return [&backend](const View& into, const View& from) { backend.launch(&KernelTable::join_bins, JoinBins{into, from}); };
}
}  // namespace

RankRows::RankRows(Backend& backend, const Manifest& manifest, const RankPlace& place, const Profile* profile, bool whole_items)
    : backend_(backend), manifest_(manifest), place_(place_of_sequences(place)), of_experts_(place) {
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    const auto id = static_cast<ParameterId>(i);
    const int rank = holders(i).data_rank(), ranks = holders(i).layout.data();
    shares_.push_back(profile ? share_of_scales(p, id, rank, ranks, *profile) : parameter_share(p, id, rank, ranks));
    if (whole_items) deal_items(shares_.back(), p, id);
  }
}

std::int64_t RankRows::own_items(std::size_t i) const {
  const Parameter& p = manifest_.parameters()[i];
  return deals(i) ? shares_[i].count() * shares_[i].width / std::max<std::int64_t>(1, p.item_size()) : p.count;
}

std::pair<std::int64_t, std::int64_t> RankRows::shape(std::size_t i) const {
  const Parameter& p = manifest_.parameters()[i];
  if (deals(i)) return {shares_[i].count(), shares_[i].width};
  return p.layout == ParameterLayout::packed ? std::pair(std::int64_t{1}, p.size()) : std::pair(p.table_rows(), p.inputs);
}

Buffer RankRows::allocate_copy(std::size_t i, const Profile* profile) const {
  const Parameter& p = manifest_.parameters()[i];
  const DType dtype = profile ? compute_dtype(p, *profile) : DType::f32;
  if (!keeps_rows(i))
    return dtype == DType::u8 ? allocate_compute_copy(backend_, p, *profile) : allocate_parameter(backend_, p, dtype, MemoryCategory::weights);
  const ParameterShare& share = shares_[i];
  const std::int64_t panel = dtype == DType::u8 && share.total() > 0 ? p.count * item_bytes(p, *profile) / share.total() : share.width;
  return backend_.device().allocate(dtype, share.count(), panel, MemoryCategory::weights);
}

View RankRows::own_of(std::size_t i, const View& whole_or_own) const {
  return whole_or_own.size() == shares_[i].total() * shares_[i].width ? own(i, whole_or_own) : whole_or_own;
}

void RankRows::write(std::size_t i, const View& own, const std::vector<float>& image) const {
  if (!deals(i) || backend_.device().counting()) return backend_.stream().write(own, image);
  const ParameterShare& share = shares_[i];
  const auto begin = image.begin() + share.begin() * share.width;
  backend_.stream().write(own, std::vector<float>(begin, begin + share.count() * share.width));
}

void RankRows::gather(std::size_t i, const View& whole) const {
  if (travels(i)) all_gather(*holders(i).data, backend_.stream(), shares_[i].rows(whole), rows_by_rank(i, whole));
}

std::vector<View> RankRows::rows_by_rank(std::size_t i, const View& whole) const {
  std::vector<View> all;
  for (int r = 0; r < holders(i).layout.data(); ++r) all.push_back(shares_[i].rows_of(whole, r));
  return all;
}

void RankRows::start_gather(std::size_t i, const View& own, const View& whole) const {
  if (travels(i)) start_all_gather(*holders(i).data, backend_.stream(), own, rows_by_rank(i, whole));
}

void RankRows::finish_gather(std::size_t i) const {
  if (travels(i)) finish_all_gather(*holders(i).data, backend_.stream());
}

std::vector<float> RankRows::image(std::size_t i, const View& own) const {
  if (shares_[i].total() == 0) return {};
  const bool first = holders(i).data_rank() == 0;
  if (!deals(i)) return first ? backend_.stream().read(own).get() : std::vector<float>();
  const Buffer whole = allocate_parameter(backend_, manifest_.parameters()[i], DType::f32, MemoryCategory::workspace);
  backend_.stream().copy(shares_[i].rows(whole.view()), own.reshape(shares_[i].count(), shares_[i].width));
  gather(i, whole.view());
  return first ? backend_.stream().read(whole.view()).get() : std::vector<float>();
}

void RankRows::join(GradientSet& gradients) const {
  if (shards_weights()) return;  // each was joined when its segment was done
  for (std::size_t i = 0; i < shares_.size(); ++i) join(gradients, i);
}

void RankRows::join(GradientSet& gradients, std::size_t i) const {
  if (!deals(i)) return;
  const auto id = static_cast<ParameterId>(i);
  if (travels(i)) reduce_scatter(*holders(i).data, backend_.device(), shares_[i].by_row(gradients.bins(id)), shares_[i].bounds, adder(backend_));
  if (keeps_rows(i)) gradients.put_rows_away(id);
}

StartedReduceScatter RankRows::start_join(GradientSet& gradients, std::size_t i) const {
  if (!travels(i)) return {};
  return start_reduce_scatter(*holders(i).data, backend_.device(), shares_[i].by_row(gradients.bins(static_cast<ParameterId>(i))), shares_[i].bounds);
}

void RankRows::finish_join(GradientSet& gradients, std::size_t i, const StartedReduceScatter& started) const {
  if (!deals(i)) return;
  if (travels(i)) finish_reduce_scatter(*holders(i).data, backend_.stream(), started, adder(backend_));
  if (keeps_rows(i)) gradients.put_rows_away(static_cast<ParameterId>(i));
}

}  // namespace lockstep
