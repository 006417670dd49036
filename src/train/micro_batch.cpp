#include "train/micro_batch.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "model/context_pieces.h"
#include "model/expert_shape.h"

namespace lockstep {

namespace {
bool declares(const TrainSequence& d) { return d.prefix_group >= 0 && d.shared_prefix > 0; }

std::int64_t length_of(const TrainSequence& d) { return static_cast<std::int64_t>(d.tokens.size()); }

struct Shared {
  std::int64_t length = 0;
  std::size_t owner = 0;  // of the part
};

// Numbers a token of the experts given to a sequence, 0: none are.
std::ptrdiff_t experts_width(const TrainSequence& d) { return d.tokens.empty() ? 0 : static_cast<std::ptrdiff_t>(d.experts.size() / d.tokens.size()); }
// Of its tokens [begin, end).
std::vector<std::int32_t> experts_of(const TrainSequence& d, std::int64_t begin, std::int64_t end) {
  const std::ptrdiff_t width = experts_width(d);
  return {d.experts.begin() + begin * width, d.experts.begin() + end * width};
}

// A number per row that is equal exactly when rows are: the token; where experts are given, a number for each (token, experts).
class RowKeys {
 public:
  RowKeys(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part) : data_(data), part_(part) {
    if (std::none_of(part.begin(), part.end(), [&](std::size_t s) { return !data[s].experts.empty(); })) return;
    std::map<std::vector<std::int32_t>, std::int32_t> numbers;
    for (const std::size_t s : part) {
      const TrainSequence& d = data[s];
      std::vector<std::int32_t>& own = made_.emplace_back();
      for (std::int64_t i = 0; i < length_of(d); ++i) {
        std::vector<std::int32_t> row = experts_of(d, i, i + 1);
        if (row.empty() || row[0] == kOwnExperts) row.clear();
        row.push_back(d.tokens[static_cast<std::size_t>(i)]);
        own.push_back(numbers.try_emplace(std::move(row), static_cast<std::int32_t>(numbers.size())).first->second);
      }
    }
  }
  // Of the part's i-th sequence.
  const std::vector<std::int32_t>& operator[](std::size_t i) const { return made_.empty() ? data_[part_[i]].tokens : made_[i]; }

 private:
  const std::vector<TrainSequence>& data_;
  const std::vector<std::size_t>& part_;
  std::vector<std::vector<std::int32_t>> made_;  // none: no sequence is given experts
};

// For each sequence, the longest prefix that another one has too; one sequence owns each set of equal rows. The longest common prefixes
// are between neighbours in lexicographic order.
std::vector<Shared> equal_prefixes(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part) {
  std::vector<std::size_t> order(part.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const RowKeys keys(data, part);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  std::vector<Shared> shared(part.size());
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto &before = keys[order[i - 1]], &own = keys[order[i]];
    const std::size_t most = std::min(before.size(), own.size());
    const auto end = std::mismatch(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(most), before.begin()).first;
    Shared& s = shared[order[i]];
    s = {end - own.begin(), order[i - 1]};
    while (s.length > 0 && s.length <= shared[s.owner].length) s.owner = shared[s.owner].owner;  // the sequence that computes them
  }
  return shared;
}

// Positions [0, shared) use the owner's pages, the others new ones; a page holds one position.
void add_slots(SequenceSlice& slice, const std::vector<SequenceSlice>& slices, std::int64_t& next) {
  if (slice.shared > 0) {
    const std::vector<std::int32_t>& pages = slices[slice.owner].pages;
    slice.pages.assign(pages.begin(), pages.begin() + slice.shared);
  }
  const std::int64_t end = slice.begin + static_cast<std::int64_t>(slice.tokens.size());
  for (std::int64_t p = slice.shared; p < end; ++p) slice.pages.push_back(static_cast<std::int32_t>(next++));
}

RowPlan plan_shared(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const std::vector<Shared>& shared) {
  RowPlan plan;
  plan.page_size = 1;
  for (std::size_t i = 0; i < part.size(); ++i) {
    plan.slices.push_back({data[part[i]].tokens, 0, {}, shared[i].length, shared[i].owner, data[part[i]].experts});
    plan.origins.push_back({part[i], false});
  }
  // Owners before their sharers: an owner's own shared prefix is shorter.
  std::vector<std::size_t> order(part.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return shared[a].length < shared[b].length; });
  for (const std::size_t i : order) add_slots(plan.slices[i], plan.slices, plan.pages);
  return plan;
}

RowPlan plan_declared(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part) {
  RowPlan plan;
  plan.page_size = 1;
  std::map<std::int64_t, std::size_t> prefix_of;  // group: slice
  const auto add = [&](SequenceSlice slice, std::size_t sequence, bool prefix) {
    add_slots(slice, plan.slices, plan.pages);
    plan.slices.push_back(std::move(slice));
    plan.origins.push_back({sequence, prefix});
  };
  for (const std::size_t at : part) {
    const TrainSequence& d = data[at];
    SequenceSlice slice;
    if (declares(d)) {
      const auto cut = d.tokens.begin() + d.shared_prefix;
      const auto [known, fresh] = prefix_of.try_emplace(d.prefix_group, plan.slices.size());
      if (fresh) add({.tokens = {d.tokens.begin(), cut}, .experts = experts_of(d, 0, d.shared_prefix)}, at, true);
      slice = {{cut, d.tokens.end()}, d.shared_prefix, {}, d.shared_prefix, known->second, experts_of(d, d.shared_prefix, length_of(d))};
    } else {
      slice.tokens = d.tokens;
      slice.experts = d.experts;
    }
    add(std::move(slice), at, false);
  }
  return plan;
}
}  // namespace

std::vector<std::vector<std::size_t>> sequence_units(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members) {
  std::vector<std::vector<std::size_t>> units;
  std::map<std::int64_t, std::size_t> unit_of;
  for (const std::size_t s : members) {
    if (declares(data[s])) {
      const auto [known, fresh] = unit_of.try_emplace(data[s].prefix_group, units.size());
      if (!fresh) {
        units[known->second].push_back(s);
        continue;
      }
    }
    units.push_back({s});
  }
  return units;
}

std::vector<std::vector<std::size_t>> micro_batches(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members, std::size_t size) {
  std::vector<std::vector<std::size_t>> parts;
  for (const std::vector<std::size_t>& unit : sequence_units(data, members)) {
    if (size > 0 && unit.size() > size)
      fail(ErrorCode::invalid_argument, "micro_batch is {}, and a group that shares its prefix in the backward has {} sequences; allowed is at least that many",
           size, unit.size());
    if (parts.empty() || (size > 0 && parts.back().size() + unit.size() > size)) parts.emplace_back();
    parts.back().insert(parts.back().end(), unit.begin(), unit.end());
  }
  return parts;
}

std::size_t micro_batch_size(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members, std::int64_t wanted, int stages) {
  if (wanted > 0 || stages == 1) return static_cast<std::size_t>(wanted);
  const std::size_t parts = static_cast<std::size_t>(kMicroBatchesAStage * stages);
  std::size_t size = (members.size() + parts - 1) / parts;
  for (const std::vector<std::size_t>& unit : sequence_units(data, members)) size = std::max(size, unit.size());
  return size;
}

void check_declared_prefixes(const std::vector<TrainSequence>& data) {
  std::map<std::int64_t, std::size_t> first;
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const auto wrong = [&](const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
    if (d.shared_prefix < 0 || d.shared_prefix > length_of(d))
      wrong(fmt::format("shared_prefix is {}, allowed is 0 to its {} tokens", d.shared_prefix, length_of(d)));
    if (d.shared_prefix > 0 && d.prefix_group < 0) wrong(fmt::format("shared_prefix is {}, and prefix_group says no group", d.shared_prefix));
    if (!declares(d)) continue;
    for (std::int64_t i = 0; i < d.shared_prefix * d.targets_per_row; ++i)
      if (d.targets[static_cast<std::size_t>(i)] >= 0)
        wrong(fmt::format("target {} is {}, inside its shared prefix of {}; allowed is -1 there", i, d.targets[static_cast<std::size_t>(i)], d.shared_prefix));
    const auto [known, fresh] = first.try_emplace(d.prefix_group, s);
    if (fresh) continue;
    const TrainSequence& other = data[known->second];
    if (other.shared_prefix != d.shared_prefix || !std::equal(d.tokens.begin(), d.tokens.begin() + d.shared_prefix, other.tokens.begin()))
      wrong(fmt::format("its shared prefix is not that of sequence {}, and both are of group {}", known->second, d.prefix_group));
    if (experts_of(other, 0, d.shared_prefix) != experts_of(d, 0, d.shared_prefix))
      wrong(fmt::format("the experts of its shared prefix are not those of sequence {}, and both are of group {}", known->second, d.prefix_group));
  }
}

RowPlan plan_rows(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t page_size, bool share) {
  if (std::any_of(part.begin(), part.end(), [&](std::size_t s) { return declares(data[s]); })) return plan_declared(data, part);
  if (share) {
    const std::vector<Shared> shared = equal_prefixes(data, part);
    std::int64_t rows = 0, saved = 0;
    for (std::size_t i = 0; i < part.size(); ++i) rows += length_of(data[part[i]]), saved += shared[i].length;
    // Copying rows back to their sequences has a cost: sharing only a common first token is not worth it.
    if (saved * 16 >= rows) return plan_shared(data, part, shared);
  }
  RowPlan plan;
  plan.page_size = page_size;
  for (const std::size_t at : part) {
    plan.slices.push_back({.tokens = data[at].tokens, .experts = data[at].experts});
    plan.origins.push_back({at, false});
    for (std::int64_t p = 0; p < length_of(data[at]); p += page_size) plan.slices.back().pages.push_back(static_cast<std::int32_t>(plan.pages++));
  }
  return plan;
}

RowPlan plan_pieces(const std::vector<TrainSequence>& data, std::size_t sequence, std::int64_t page_size, int ranks, int rank) {
  const TrainSequence& d = data[sequence];
  RowPlan plan;
  plan.page_size = page_size;
  plan.pages = (length_of(d) + page_size - 1) / page_size;
  std::vector<std::int32_t> pages(static_cast<std::size_t>(plan.pages));
  std::iota(pages.begin(), pages.end(), 0);
  for (const PositionRange& piece : pieces_of_rank(length_of(d), ranks, rank)) {
    plan.slices.push_back({.tokens = {d.tokens.begin() + piece.begin, d.tokens.begin() + piece.end},
                           .begin = piece.begin,
                           .pages = pages,
                           .experts = experts_of(d, piece.begin, piece.end),
                           .piece = true});
    plan.origins.push_back({sequence, false});
  }
  return plan;
}

JointPlan plan_together(const std::vector<DataPart>& parts, std::int64_t page_size, bool share) {
  JointPlan all;
  for (const DataPart& one : parts) {
    RowPlan plan = plan_rows(*one.data, one.part, parts.size() > 1 ? 1 : page_size, share);
    const std::size_t first = all.slices.size();
    for (SequenceSlice slice : plan.slices) {
      slice.owner += first;
      for (std::int32_t& page : slice.pages) page += static_cast<std::int32_t>(all.pages);
      all.slices.push_back(std::move(slice));
    }
    all.page_size = plan.page_size;
    all.pages += plan.pages;
    all.first_slice.push_back(first);
    all.plans.push_back(std::move(plan));
  }
  return all;
}

}  // namespace lockstep
