// Every operation of a communicator, on all groups of a layout, with random numbers and shapes of a fixed seed, odd and empty ones among them.
// Whatever the ranks are, each rank's bytes are the same. Tests only.
//   std::vector<std::string> got = operations_of(ranks, 3);   // by local rank: everything that it received, in order
#pragma once
#include "base/philox.h"
#include "parallel/collectives.h"
#include "parallel/ranks.h"

namespace lockstep {

// One rank's part of them.
class RankOperations {
 public:
  RankOperations(const RankPlace& place, std::uint64_t seed) : place_(place), seed_(seed), device_(BackendKind::cpu, 1) {}

  std::string run(int rounds) {
    for (int round = 0; round < rounds; ++round)
      for (Communicator* group : {place_.world, place_.tensor, place_.model, place_.data}) {
        if (!group) continue;
        each_from_all(*group);
        tree(*group);
        exact(*group);
        halves(*group);
        host(*group);
        group->barrier();
      }
    return seen_;
  }

 private:
  // Drawn alike on every rank, since all draw in the same order.
  std::int64_t shape(std::int64_t below) { return shapes_.below(static_cast<std::uint32_t>(below)); }
  std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = static_cast<float>(own_.uniform() * 2 - 1) * (own_.below(3) == 0 ? 1e6f : 1.0f);
    return values;
  }
  Stream& stream() { return device_.stream(); }
  AddInto adder() {
    return [this](const View& into, const View& from) {
      std::vector<float> a = stream().read(into).get();
      const std::vector<float> b = stream().read(from).get();
      for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      stream().write(into, a);
    };
  }
  void see(const View& view) {
    const std::vector<float> values = stream().read(view).get();
    seen_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }

  void each_from_all(Communicator& group) {
    const std::int64_t columns = 1 + shape(9);
    std::vector<std::int64_t> rows;
    std::int64_t all = 0;
    for (int r = 0; r < group.size(); ++r) rows.push_back(shape(6)), all += rows.back();
    const Buffer gathered = device_.allocate_zero(DType::f32, all, columns, MemoryCategory::workspace);
    std::vector<View> views;
    std::int64_t at = 0;
    for (const std::int64_t count : rows) views.push_back(gathered.view().row_range(at, count)), at += count;
    const std::int64_t mine = rows[static_cast<std::size_t>(group.rank())];
    const Buffer own = device_.upload(numbers(mine * columns), mine, columns, MemoryCategory::workspace);
    all_gather(group, stream(), own.view(), views);
    see(gathered.view());
    // A column range: rows with gaps.
    const Buffer wide = device_.upload(numbers(7 * 5), 7, 5, MemoryCategory::workspace);
    broadcast(group, stream(), wide.view().column_range(1, 3), static_cast<int>(shape(group.size())));
    see(wide.view());
  }
  void tree(Communicator& group) {
    const std::int64_t leaves = std::int64_t{1} << shape(4), rows = 1 + shape(40), columns = 1 + shape(20);
    const Buffer data = device_.upload(numbers(rows * columns), rows, columns, MemoryCategory::workspace);
    all_reduce_tree(group, device_, data.view(), leaves, adder());
    see(data.view());
  }
  void exact(Communicator& group) {
    const std::int64_t rows = 11;
    std::vector<std::int64_t> bounds;
    for (int r = 0; r <= group.size(); ++r) bounds.push_back(rows * r / group.size());
    const Buffer data = device_.upload(numbers(rows * 2), rows, 2, MemoryCategory::workspace);
    reduce_scatter(group, device_, data.view(), bounds, adder());
    see(data.view());
  }
  // Begun together, finished in order.
  void halves(Communicator& group) {
    const std::int64_t rows = group.size() * 3 + shape(4), columns = 1 + shape(5);
    std::vector<std::int64_t> bounds;
    for (int r = 0; r <= group.size(); ++r) bounds.push_back(rows * r / group.size());
    const auto me = static_cast<std::size_t>(group.rank());
    const Buffer sums = device_.upload(numbers(rows * columns), rows, columns, MemoryCategory::workspace);
    const StartedReduceScatter started = start_reduce_scatter(group, device_, sums.view(), bounds);
    std::vector<Buffer> own, gathered;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t mine = bounds[me + 1] - bounds[me];
      own.push_back(device_.upload(numbers(mine * columns), mine, columns, MemoryCategory::workspace));
      gathered.push_back(device_.allocate_zero(DType::f32, rows, columns, MemoryCategory::workspace));
      std::vector<View> all;
      for (int r = 0; r < group.size(); ++r)
        all.push_back(gathered.back().view().row_range(bounds[static_cast<std::size_t>(r)],
                                                       bounds[static_cast<std::size_t>(r) + 1] - bounds[static_cast<std::size_t>(r)]));
      start_all_gather(group, stream(), own.back().view(), all);
    }
    finish_reduce_scatter(group, stream(), started, adder());
    see(sums.view());
    for (const Buffer& whole : gathered) {
      finish_all_gather(group, stream());
      see(whole.view());
    }
  }
  void host(Communicator& group) {
    const std::string mine(static_cast<std::size_t>(own_.below(40)), static_cast<char>('a' + place_.rank));
    for (const std::string& record : group.gather_host(mine)) seen_ += record + "|";
  }

  RankPlace place_;
  std::uint64_t seed_;
  RandomSequence shapes_{seed_, RandomStream::fuzz, 0}, own_{seed_, RandomStream::fuzz, 1 + static_cast<std::uint64_t>(place_.rank)};
  Device device_;
  std::string seen_;
};

inline std::vector<std::string> operations_of(Ranks& ranks, std::uint64_t seed, int rounds = 5) {
  std::vector<std::string> seen(static_cast<std::size_t>(ranks.local()));
  ranks.run([&](int local) { seen[static_cast<std::size_t>(local)] = RankOperations(ranks.place(local), seed).run(rounds); });
  return seen;
}

}  // namespace lockstep
