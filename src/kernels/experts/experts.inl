// Implementation of experts.h.
namespace lockstep {

template <class V>
void expert_plan(const ExpertPlan& op, ThreadPool&) {
  const std::int64_t T = op.expert.rows, k = op.expert.cols, experts = op.offsets.rows - 1;
  std::int32_t* offsets = ints(op.offsets);
  // Counting sort; next[e] is the next free slot of expert e.
  std::int32_t* next = thread_scratch<std::int32_t>(static_cast<std::size_t>(experts));
  std::fill(offsets, offsets + experts + 1, 0);
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t j = 0; j < k; ++j) ++offsets[ints(op.expert)[t * op.expert.stride + j] + 1];
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  std::copy(offsets, offsets + experts, next);
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t slot = next[ints(op.expert)[t * op.expert.stride + j]]++;
      ints(op.row_of)[slot] = static_cast<std::int32_t>(t);
      ints(op.slot_of)[t * op.slot_of.stride + j] = slot;
    }
}

template <class V>
void slot_ranges(const SlotRanges& op, ThreadPool&) {
  const std::int32_t* row_of = ints(op.row_of);
  for (std::int64_t e = 0; e < op.begin.rows; ++e) {
    std::int32_t begin = ints(op.offsets)[e];
    const std::int32_t last = ints(op.offsets)[e + 1];
    while (begin < last && row_of[begin] < op.row_begin) ++begin;
    std::int32_t end = begin;
    while (end < last && row_of[end] < op.row_end) ++end;
    ints(op.begin)[e] = begin;
    ints(op.end)[e] = end;
  }
}

template <class V>
void expert_gather(const ExpertGather& op, ThreadPool& pool) {
  const std::int64_t h = op.y.cols;
  pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t slot = block * 16; slot < std::min(op.y.rows, block * 16 + 16); ++slot) {
      const auto* x = elements<V>(op.x) + ints(op.row_of)[slot] * op.x.stride;
      auto* y = elements<V>(op.y) + slot * op.y.stride;
      for (std::int64_t i = 0; i < h; i += 16) {
        const int lanes = lanes_left(h, i);
        V::load_partial(x + i, lanes).store_partial(y + i, lanes);
      }
    }
  });
}

template <class V>
void expert_combine(const ExpertCombine& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.y.rows, h = op.y.cols, k = op.expert.cols;
  pool.run((T + 7) / 8, [&](std::int64_t block) {
    for (std::int64_t t = block * 8; t < std::min(T, block * 8 + 8); ++t) {
      const std::int32_t* expert = ints(op.expert) + t * op.expert.stride;
      const std::int32_t* slot = op.slot_of ? ints(op.slot_of) + t * op.slot_of.stride : nullptr;
      const E* weight = op.weight ? elements<V>(op.weight) + t * op.weight.stride : nullptr;
      E* y = elements<V>(op.y) + t * op.y.stride;
      for (std::int64_t i = 0; i < h; i += 16) {
        const int lanes = lanes_left(h, i);
        V group[kExpertGroups];
        for (V& g : group) g = V::zero();
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t at = kExpertGroups * expert[j] / op.experts;
          if (at < op.group_begin || at >= op.group_end) continue;
          V& acc = group[at];
          const std::int64_t row = slot ? slot[j] : t * k + j;
          const V x = V::load_partial(elements<V>(op.x) + row * op.x.stride + i, lanes);
          acc = weight ? fma(V::set1(weight[j]), x, acc) : acc + x;
        }
        join_pairwise(group + op.group_begin, op.group_end - op.group_begin).store_partial(y + i, lanes);
      }
    }
  });
}

template <class V>
void expert_spread(const ExpertSpread& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.dy.rows, h = op.dy.cols, k = op.slot_of.cols;
  pool.run((T + 7) / 8, [&](std::int64_t block) {
    for (std::int64_t t = block * 8; t < std::min(T, block * 8 + 8); ++t) {
      const E* dy = elements<V>(op.dy) + t * op.dy.stride;
      for (std::int64_t j = 0; j < k; ++j) {
        if (op.expert) {
          const std::int32_t e = ints(op.expert)[t * op.expert.stride + j];
          if (e < op.expert_begin || e >= op.expert_end) continue;
        }
        const std::int64_t slot = ints(op.slot_of)[t * op.slot_of.stride + j];
        const E* x = elements<V>(op.x) + slot * op.x.stride;
        E* dx = elements<V>(op.dx) + slot * op.dx.stride;
        elements<V>(op.dweight)[t * op.dweight.stride + j] = dot16<V>(dy, x, h);
        const V w = V::set1(elements<V>(op.weight)[t * op.weight.stride + j]);
        for (std::int64_t i = 0; i < h; i += 16) {
          const int lanes = lanes_left(h, i);
          (w * V::load_partial(dy + i, lanes)).store_partial(dx + i, lanes);
        }
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(expert_plan, ExpertPlan)
LOCKSTEP_INSTANTIATE(slot_ranges, SlotRanges)
LOCKSTEP_INSTANTIATE(expert_gather, ExpertGather)
LOCKSTEP_INSTANTIATE(expert_combine, ExpertCombine)
LOCKSTEP_INSTANTIATE(expert_spread, ExpertSpread)

}  // namespace lockstep
