#include "train/rank_record.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "model/context_pieces.h"
#include "numerics/exact_sum.h"
#include "train/micro_batch.h"

namespace lockstep {

std::vector<DealtData::Part> DealtData::parts(const std::vector<TrainSequence>& data) const {
  std::vector<Part> all;
  for (const std::size_t s : whole) all.push_back({s, 0, std::ssize(data[s].tokens)});
  for (const std::size_t s : cut)
    for (const PositionRange& piece : pieces_of_rank(std::ssize(data[s].tokens), context_ranks, context_rank)) all.push_back({s, piece.begin, piece.end});
  return all;
}

std::int64_t DealtData::tokens(const std::vector<TrainSequence>& data) const {
  std::int64_t sum = 0;
  for (const Part& part : parts(data)) sum += part.end - part.begin;
  return sum;
}

std::vector<DealtData> deal_sequences(const std::vector<TrainSequence>& data, const RankLayout& layout, std::vector<std::size_t>* before) {
  std::vector<std::size_t> all(data.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> units = sequence_units(data, all);
  const auto tokens_of = [&](const std::vector<std::size_t>& unit) {
    return std::accumulate(unit.begin(), unit.end(), std::size_t{0}, [&](std::size_t sum, std::size_t s) { return sum + data[s].tokens.size(); });
  };
  std::stable_sort(units.begin(), units.end(), [&](const auto& a, const auto& b) { return tokens_of(a) > tokens_of(b); });
  const auto ranks = static_cast<std::size_t>(layout.data()), fellows = static_cast<std::size_t>(layout.cp);
  std::vector<DealtData> dealt(ranks);
  for (std::size_t r = 0; r < ranks; ++r) dealt[r].context_rank = static_cast<int>(r % fellows), dealt[r].context_ranks = layout.cp;
  std::vector<std::size_t> none;
  std::vector<std::size_t>& tokens = before ? *before : none;
  tokens.resize(ranks);
  for (const std::vector<std::size_t>& unit : units) {
    const TrainSequence& first = data[unit.front()];
    const bool declared = first.prefix_group >= 0 && first.shared_prefix > 0;
    if (!declared && is_cut(std::ssize(first.tokens), layout.cp)) {
      const auto of_group = [&](std::size_t group) {
        return std::accumulate(tokens.begin() + static_cast<std::ptrdiff_t>(group * fellows),
                               tokens.begin() + static_cast<std::ptrdiff_t>((group + 1) * fellows), std::size_t{0});
      };
      std::size_t least = 0;
      for (std::size_t group = 1; group < static_cast<std::size_t>(layout.dp); ++group)
        if (of_group(group) < of_group(least)) least = group;
      for (std::size_t r = least * fellows; r < (least + 1) * fellows; ++r) {
        dealt[r].cut.push_back(unit.front());
        for (const PositionRange& piece : pieces_of_rank(std::ssize(first.tokens), layout.cp, dealt[r].context_rank))
          tokens[r] += static_cast<std::size_t>(piece.size());
      }
      continue;
    }
    const auto least = static_cast<std::size_t>(std::min_element(tokens.begin(), tokens.end()) - tokens.begin());
    dealt[least].whole.insert(dealt[least].whole.end(), unit.begin(), unit.end());
    tokens[least] += tokens_of(unit);
  }
  for (DealtData& own : dealt) std::sort(own.whole.begin(), own.whole.end()), std::sort(own.cut.begin(), own.cut.end());
  return dealt;
}

std::vector<PassPart> pass_parts(const std::vector<TrainSequence>& data, const DealtData& own, std::int64_t micro_batch, int stages) {
  std::vector<PassPart> parts;
  for (const std::size_t s : own.cut) parts.push_back({{s}, true});
  for (std::vector<std::size_t>& part : micro_batches(data, own.whole, micro_batch_size(data, own.whole, micro_batch, stages)))
    parts.push_back({std::move(part), false});
  return parts;
}

namespace {
template <class T>
void put(std::string& bytes, const T* values, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}
// Reads what put() wrote, in order.
struct Reader {
  const std::string& bytes;
  std::size_t at = 0;
  template <class T>
  void take(T* values, std::size_t count) {
    if (count > 0) std::memcpy(values, bytes.data() + at, count * sizeof(T));
    at += count * sizeof(T);
  }
};
}  // namespace

void join_records(Communicator& group, const std::vector<DealtData>& dealt, const std::vector<TrainSequence>& data, ForwardBackwardResult& result,
                  RowSums& sums) {
  // f(values, from, count) for each kind of results of the rows of a part.
  const auto each = [&](const DealtData::Part& part, const auto& f) {
    const auto rows = [&](auto& values, std::int64_t a_row) {
      f(values, static_cast<std::size_t>(part.begin * a_row), static_cast<std::size_t>((part.end - part.begin) * a_row));
    };
    const std::int64_t targets = data[part.sequence].targets_per_row;
    rows(result.logprobs[part.sequence], targets);
    rows(result.entropies[part.sequence], 1);
    if (!result.losses.empty()) rows(result.losses[part.sequence], targets);
    if (!result.marks.empty()) rows(result.marks[part.sequence], targets);
  };
  std::string mine;
  const std::int64_t head[] = {result.rows,           result.scored, std::ssize(sums.index_losses), result.gradient_tokens, result.gradient_sequences,
                               std::ssize(sums.moved)};
  put(mine, head, std::size(head));
  put(mine, sums.index_losses.data(), sums.index_losses.size());
  put(mine, sums.moved.data(), sums.moved.size());
  for (const DealtData::Part& part : dealt[static_cast<std::size_t>(group.rank())].parts(data))
    each(part, [&](auto& values, std::size_t from, std::size_t count) {
      values.resize(std::max(values.size(), from + count));
      put(mine, values.data() + from, count);
    });
  const std::vector<std::string> all = group.gather_host(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == static_cast<std::size_t>(group.rank())) continue;
    Reader reader{all[rank]};
    std::int64_t theirs[std::size(head)];
    reader.take(theirs, std::size(head));
    result.rows += theirs[0];
    result.scored += theirs[1];
    result.gradient_tokens += theirs[3];
    result.gradient_sequences += theirs[4];
    const auto append = [&reader](auto& values, std::int64_t count) {
      const std::size_t before = values.size();
      values.resize(before + static_cast<std::size_t>(count));
      reader.take(values.data() + before, static_cast<std::size_t>(count));
    };
    append(sums.index_losses, theirs[2]);
    append(sums.moved, theirs[5]);
    for (const DealtData::Part& part : dealt[rank].parts(data))
      each(part, [&reader](auto& values, std::size_t from, std::size_t count) {
        values.resize(std::max(values.size(), from + count));
        reader.take(values.data() + from, count);
      });
  }
}

void join_stages(Communicator& stages, int last, const DealtData& own, const std::vector<TrainSequence>& data, ForwardBackwardResult& result, RowSums& sums) {
  std::vector<DealtData> of_stage(static_cast<std::size_t>(stages.size()));
  of_stage[static_cast<std::size_t>(last)] = own;
  join_records(stages, of_stage, data, result, sums);
}

void count_moved(RowSums& sums, ForwardBackwardResult& result) {
  result.gradient_sequences += std::ssize(std::set<std::size_t>(sums.moved.begin(), sums.moved.end()));
  sums.moved.clear();
}

void total_losses(const RowSums& sums, double rows, ForwardBackwardResult& result) {
  ExactSum loss, index_loss;
  for (const std::vector<float>& sequence : result.losses)
    for (const float target : sequence) loss.add(static_cast<double>(target));
  for (const double row : sums.index_losses) index_loss.add(row);
  result.loss = loss.total();
  result.index_loss = rows > 0 ? index_loss.total() / rows : 0.0;
}

}  // namespace lockstep
