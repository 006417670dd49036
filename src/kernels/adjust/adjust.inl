// Implementation of adjust.h: one work item per row.
namespace lockstep {

template <class V>
inline void adjust_row(const AdjustLogits& op, std::int64_t row) {
  using Elem = typename V::Elem;
  const auto number = [](const View& v, std::int64_t at) { return elements<V>(v)[at * v.stride]; };
  const auto integer = [](const View& v, std::int64_t at) { return ints(v)[at * v.stride]; };
  const Elem* logits = elements<V>(op.logits) + integer(op.row, row) * op.logits.stride;
  Elem* y = elements<V>(op.y) + row * op.y.stride;
  std::copy(logits, logits + op.y.cols, y);
  const Elem repetition = number(op.repetition, row), presence = number(op.presence, row), frequency = number(op.frequency, row);
  for (std::int64_t e = integer(op.begin, row); e < integer(op.begin, row + 1); ++e) {
    const std::int32_t token = integer(op.token, e), count = integer(op.count, e);
    Elem x = logits[token];
    if (integer(op.seen, e)) x = value_of(x) > 0.0f ? x / repetition : x * repetition;
    if (count > 0) x = fused(element<Elem>(-static_cast<float>(count)), frequency, x) - presence;
    y[token] = x + number(op.bias, e);
  }
}

template <class V>
void adjust_logits(const AdjustLogits& op, ThreadPool& pool) {
  pool.run(op.y.rows, [&](std::int64_t row) { adjust_row<V>(op, row); });
}

LOCKSTEP_INSTANTIATE(adjust_logits, AdjustLogits)

}  // namespace lockstep
