#include "train/rank_record.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "numerics/accumulator.h"
#include "train/micro_batch.h"

namespace lockstep {

std::vector<std::vector<std::size_t>> deal_sequences(const std::vector<TrainSequence>& data, int ranks, std::vector<std::size_t>* before) {
  std::vector<std::size_t> all(data.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> units = sequence_units(data, all);
  const auto tokens_of = [&](const std::vector<std::size_t>& unit) {
    return std::accumulate(unit.begin(), unit.end(), std::size_t{0}, [&](std::size_t sum, std::size_t s) { return sum + data[s].tokens.size(); });
  };
  std::stable_sort(units.begin(), units.end(), [&](const auto& a, const auto& b) { return tokens_of(a) > tokens_of(b); });
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(ranks));
  std::vector<std::size_t> none;
  std::vector<std::size_t>& tokens = before ? *before : none;
  tokens.resize(dealt.size());
  for (const std::vector<std::size_t>& unit : units) {
    const auto least = static_cast<std::size_t>(std::min_element(tokens.begin(), tokens.end()) - tokens.begin());
    dealt[least].insert(dealt[least].end(), unit.begin(), unit.end());
    tokens[least] += tokens_of(unit);
  }
  for (auto& own : dealt) std::sort(own.begin(), own.end());
  return dealt;
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

void join_records(Communicator& group, const std::vector<std::vector<std::size_t>>& dealt, const std::vector<TrainSequence>& data,
                  ForwardBackwardResult& result, RowSums& sums) {
  std::string mine;
  const std::int64_t head[] = {result.rows, result.scored, static_cast<std::int64_t>(sums.index_losses.size()), result.gradient_tokens,
                               result.gradient_sequences};
  put(mine, head, 5);
  put(mine, sums.index_losses.data(), sums.index_losses.size());
  for (const std::size_t s : dealt[static_cast<std::size_t>(group.rank())]) {
    put(mine, result.logprobs[s].data(), result.logprobs[s].size());
    put(mine, result.entropies[s].data(), result.entropies[s].size());
    if (!result.losses.empty()) put(mine, result.losses[s].data(), result.losses[s].size());
    if (!result.marks.empty()) put(mine, result.marks[s].data(), result.marks[s].size());
  }
  const std::vector<std::string> all = group.gather_host(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == static_cast<std::size_t>(group.rank())) continue;
    Reader reader{all[rank]};
    std::int64_t theirs[5];
    reader.take(theirs, 5);
    result.rows += theirs[0];
    result.scored += theirs[1];
    result.gradient_tokens += theirs[3];
    result.gradient_sequences += theirs[4];
    const std::size_t index_losses = sums.index_losses.size();
    sums.index_losses.resize(index_losses + static_cast<std::size_t>(theirs[2]));
    reader.take(sums.index_losses.data() + index_losses, static_cast<std::size_t>(theirs[2]));
    for (const std::size_t s : dealt[rank]) {
      const auto take = [&reader](auto& values, std::size_t count) {
        values.resize(count);
        reader.take(values.data(), count);
      };
      take(result.logprobs[s], data[s].targets.size());
      take(result.entropies[s], data[s].tokens.size());
      if (!result.losses.empty()) take(result.losses[s], data[s].targets.size());
      if (!result.marks.empty()) take(result.marks[s], data[s].targets.size());
    }
  }
}

void join_stages(Communicator& stages, int last, const std::vector<std::size_t>& own, const std::vector<TrainSequence>& data, ForwardBackwardResult& result,
                 RowSums& sums) {
  std::vector<std::vector<std::size_t>> of_stage(static_cast<std::size_t>(stages.size()));
  of_stage[static_cast<std::size_t>(last)] = own;
  join_records(stages, of_stage, data, result, sums);
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
