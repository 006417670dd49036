// Tests only: rows of several sequences over a shuffled page table, each with as many pages as it needs, for kernels that read the paged cache.
//   PagedRows rows({{20, 0}, {3, 70}}, 4); Rows r = rows.view(bench); rows.slot(sequence, position)
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/kernel_test_tools.h"

namespace lockstep {

struct PagedRows {
  struct Sequence {
    int length, prefix;  // rows in the batch; positions before them that stand in the cache alone
  };
  std::vector<Sequence> sequences;
  int page_size;
  std::vector<std::int32_t> position, sequence, begin, pages, first_page{0};  // first_page: of each sequence in `pages`, and the end
  int most_pages = 0;

  PagedRows(std::vector<Sequence> s, int page) : sequences(std::move(s)), page_size(page) {
    begin = {0};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      for (int r = 0; r < sequences[i].length; ++r) {
        position.push_back(sequences[i].prefix + r);
        sequence.push_back(static_cast<std::int32_t>(i));
      }
      begin.push_back(begin.back() + sequences[i].length);
      const int own = (sequences[i].prefix + sequences[i].length + page - 1) / page;
      most_pages = std::max(most_pages, own);
      first_page.push_back(first_page.back() + own);
    }
    pages.resize(static_cast<std::size_t>(first_page.back()));
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
    RandomSequence random(77, RandomStream::fuzz);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.below(static_cast<std::uint32_t>(i))]);
  }
  int rows() const { return begin.back(); }
  int slots() const { return static_cast<int>(pages.size()) * page_size; }
  int slot(int s, int p) const { return pages[static_cast<std::size_t>(first_page[static_cast<std::size_t>(s)] + p / page_size)] * page_size + p % page_size; }
  int slot_of_row(int t) const { return slot(sequence[static_cast<std::size_t>(t)], position[static_cast<std::size_t>(t)]); }
  int visible(int t) const { return position[static_cast<std::size_t>(t)] + 1; }

  Rows view(KernelBench& bench) const {
    Rows r;
    r.position = bench.ints(position, rows());
    r.sequence = bench.ints(sequence, rows());
    std::vector<std::int32_t> table;
    for (std::size_t i = 0; i < sequences.size(); ++i) table.push_back(static_cast<std::int32_t>(sequences.size()) + first_page[i]);
    table.insert(table.end(), pages.begin(), pages.end());
    r.page_table = bench.ints(table, static_cast<std::int64_t>(table.size()));
    r.page_size = page_size;
    r.longest = std::int64_t{most_pages} * page_size;
    r.sequence_begin = bench.ints(begin, static_cast<std::int64_t>(begin.size()));
    return r;
  }
  // The rows [first, first + count) alone.
  Rows part(const Rows& all, int first, int count) const {
    Rows r = all;
    r.position = all.position.row_range(first, count);
    r.sequence = all.sequence.row_range(first, count);
    return r;
  }

  // A random ascending selection of min(top_k, visible) positions a row; the row's own position always.
  std::vector<std::int32_t> random_selection(int top_k, std::vector<std::int32_t>& count) const {
    std::vector<std::int32_t> selection(static_cast<std::size_t>(rows() * top_k), -1);
    RandomSequence random(5, RandomStream::fuzz, 9);
    count.clear();
    for (int t = 0; t < rows(); ++t) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(visible(t)));
      for (int i = 0; i < visible(t); ++i) all[static_cast<std::size_t>(i)] = i;
      const int n = std::min(top_k, visible(t));
      for (int i = 0; i < n; ++i) std::swap(all[static_cast<std::size_t>(i)], all[i + random.below(static_cast<std::uint32_t>(visible(t) - i))]);
      std::sort(all.begin(), all.begin() + n);
      std::copy(all.begin(), all.begin() + n, selection.begin() + t * top_k);
      count.push_back(n);
    }
    return selection;
  }
};

// As stored: rounded to bf16 where the cache is.
inline std::vector<float> as_stored(std::vector<float> values, DType dtype) {
  if (dtype == DType::bf16)
    for (float& v : values) v = widen(round_to_bf16(v));
  return values;
}

}  // namespace lockstep
